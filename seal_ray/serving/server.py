"""A replica of the model: Ray's `LLMServer` with vLLM in it, and prompts that are those of training."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer

from envs.errors import UserError
from envs.text import valid_text
from policies.models import open_model
from seal_ray.serving.prompt import ServedFormat, TooLong, is_small
from seal_ray.serving.queues import SHORT_PROMPT, ReadingQueue
from seal_ray.serving.start import ComputingCore

if TYPE_CHECKING:
    from ray.llm._internal.serve.core.configs.openai_api_models import ChatCompletionRequest, CompletionRequest

_SHORT_CHAT = 64
"""Messages of a chat that is rendered beside long ones, which are rendered one after the other."""
_SHORT_TEXT = 32_768
"""Characters and values of such a chat, its tools and calls among them."""
_PREFERENCE = 20.0
"""The most that a client can add to a token's logit in structured answers; control tokens lose 100."""
_SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread that renders gives way to the one that answers everybody."""


class Server(LLMServer):
    """Renders each chat by the model's `ServedFormat`; all else is Ray's and vLLM's.

    `context` and `response` are the tokens of a request and of an answer at most, `reading` those of prompts that the
    engine reads at a time.
    """

    async def __init__(  # type: ignore[misc]
        self, llm_config: LLMConfig, *, folder: str, dialect: str, context: int, response: int, reading: int
    ) -> None:
        opened = open_model(folder, dialect=dialect)
        self._format = ServedFormat.load(opened.path, opened.dialect)
        self._context = context
        self._response = response
        self._reading = ReadingQueue(reading)
        self._short = ThreadPoolExecutor(2, thread_name_prefix="short")
        self._long = ThreadPoolExecutor(1, thread_name_prefix="long")
        sys.setswitchinterval(_SWITCH_INTERVAL)
        await super().__init__(llm_config, engine_cls=ComputingCore)

    async def chat(self, request: ChatCompletionRequest, raw_request_info: Any = None) -> AsyncGenerator[Any, None]:
        """Answers a chat, with a 400 where its messages cannot be a dialogue or have too many tokens."""
        try:
            token_ids = await self._rendered(request)
            asked = request.max_completion_tokens or request.max_tokens
            self._bound(request, asked or self._context - len(token_ids))
            must_call = request.tool_choice not in (None, "none", "auto")
            if must_call or _is_constrained(request):
                self._keep_to_text(request)
            if must_call:
                request.parallel_tool_calls = False  # one call; a small model would write a list without an end
        except TooLong as error:
            return _refused(str(error), param="messages", code="context_length_exceeded")
        except UserError as error:
            return _refused(str(error))
        request.max_completion_tokens = None
        if "skip_special_tokens" not in request.model_fields_set:
            request.skip_special_tokens = False  # the whole completion, as the solver's dialogues read it
        # vLLM takes the tokens of a prompt that another of its processes has rendered, instead of rendering again.
        request.kv_transfer_params = {"prompt_token_ids": list(token_ids)}
        # It reads them no more, and would go through all of them.
        request.messages = request.messages[-1:]
        show_tokens, request.return_token_ids = bool(request.return_token_ids), True
        return _listened_to(
            self._read_first([token_ids], request, partial(super().chat, request, raw_request_info)),
            lambda answer: self._format.keep(token_ids, answer.message(), answer.token_ids),
            show_tokens=show_tokens,
        )

    async def completions(self, request: CompletionRequest, raw_request_info: Any = None) -> AsyncGenerator[Any, None]:
        try:
            prompts = await self._tokenised(request)
            self._bound(request, request.max_tokens or self._response)
            if _is_constrained(request):
                self._keep_to_text(request)
        except TooLong as error:
            return _refused(str(error), param="prompt", code="context_length_exceeded")
        except UserError as error:
            return _refused(str(error))
        return self._read_first(prompts, request, partial(super().completions, request, raw_request_info))

    async def _rendered(self, request: ChatCompletionRequest) -> tuple[int, ...]:
        messages = request.messages
        tools = [_document(tool) for tool in request.tools or ()]
        short = len(messages) <= _SHORT_CHAT and is_small([messages, tools], _SHORT_TEXT)

        def render() -> tuple[int, ...]:
            # An answer has a token at least.
            return self._format.prompt(messages, tools, most=self._context - 1)

        return await asyncio.get_running_loop().run_in_executor(self._short if short else self._long, render)

    async def _tokenised(self, request: CompletionRequest) -> list[Sequence[int]]:
        """The tokens of each prompt, which the request holds from then on."""
        given: Any = request.prompt
        prompts = [given] if isinstance(given, str) or isinstance(given[0], int) else given

        def tokenise() -> list[Sequence[int]]:
            return [
                self._format.plain(prompt, most=self._context - 1, special=request.add_special_tokens)
                if isinstance(prompt, str)
                else prompt
                for prompt in prompts
            ]

        tokens = await asyncio.get_running_loop().run_in_executor(self._long, tokenise)
        if not all(tokens) or any(token >= self._format.size for each in tokens for token in each):
            raise UserError(f"prompt: it is empty, or has token ids that are not below {self._format.size}.")
        request.prompt = [list(each) for each in tokens]
        return tokens

    async def _read_first(
        self, prompts: Sequence[Sequence[int]], request: Any, ask: Callable[[], Awaitable[AsyncGenerator[Any, None]]]
    ) -> AsyncGenerator[Any, None]:
        """Has the engine read long prompts into its cache, few at a time, and then answer: `ask` starts a stream."""
        engine: Any = self.engine
        adapter = engine._oai_models.lora_requests.get(request.model)
        for prompt in prompts:
            if len(prompt) > SHORT_PROMPT:
                async with self._reading.of(len(prompt)):
                    await _read(engine._engine_client, prompt, adapter)
        async with aclosing(await ask()) as said:
            async for part in said:
                yield part

    def _bound(self, request: Any, asked: int) -> None:
        """Holds a request to the tokens of an answer and of the vocabulary; others would end the engine."""
        request.max_tokens = min(asked, self._response)
        given: list[Sequence[int]] = [request.stop_token_ids or (), request.allowed_token_ids or ()]
        given.append([int(key) for key in request.logit_bias or ()])
        if any(token >= self._format.size for ids in given for token in ids):
            raise UserError(f"token ids: the vocabulary has {self._format.size} tokens.")
        if request.min_tokens > request.max_tokens:
            raise UserError(f"min_tokens: an answer has {request.max_tokens} tokens at most.")

    def _keep_to_text(self, request: Any) -> None:
        """Keeps control tokens out of an answer that a grammar holds to, whatever else the client prefers.

        The grammar has none in its strings; other control tokens come only where it leaves nothing else.
        """
        preferred = {key: max(-_PREFERENCE, min(_PREFERENCE, bias)) for key, bias in (request.logit_bias or {}).items()}
        request.logit_bias = {**preferred, **{str(token): -100.0 for token in self._format.unspoken}}


@dataclass
class _Answer:
    """One answer while it comes in."""

    content: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    token_ids: list[int] = field(default_factory=list)

    def add(self, part: Mapping[str, Any], token_ids: Sequence[int] | None) -> None:
        """Takes in a message, or what a stream adds to one."""
        self.content += part.get("content") or ""
        for place, call in enumerate(part.get("tool_calls") or ()):
            entry = self.calls.setdefault(call.get("index", place), ["", ""])
            for index, key in enumerate(("name", "arguments")):
                entry[index] += (call.get("function") or {}).get(key) or ""
        self.token_ids += token_ids or ()

    def message(self) -> dict[str, Any]:
        """The message as a client sends it back."""
        calls = [
            {"function": {"name": name, "arguments": arguments}} for _, (name, arguments) in sorted(self.calls.items())
        ]
        return {"role": "assistant", "content": self.content, "tool_calls": calls}


async def _listened_to(
    said: AsyncGenerator[Any, None], keep: Callable[[_Answer], None], *, show_tokens: bool
) -> AsyncGenerator[Any, None]:
    """Passes on the answers of an engine, in parts or whole, and each answer's tokens to `keep` when it has ended.

    An answer that was cut at a text of `stop` is not kept: its tokens are of more than its text. The others are kept
    before a client has the end of an answer, and so before it can ask on. The engine must have been asked for tokens.
    Clients see them only with `show_tokens`.
    """
    answers: dict[int, _Answer] = {}

    def chunk(text: Any) -> Any:
        if not isinstance(text, str) or not text.startswith("data: {"):
            return text
        document = json.loads(text.removeprefix("data: "))
        for choice in document.get("choices") or ():
            answer = answers.setdefault(choice.get("index", 0), _Answer())
            answer.add(choice.get("delta") or {}, choice.get("token_ids"))
            if choice.get("finish_reason") and not isinstance(choice.get("stop_reason"), str):
                keep(answer)
            if not show_tokens:
                choice.pop("token_ids", None)
        if show_tokens:
            return text
        document.pop("prompt_token_ids", None)
        return valid_text(f"data: {json.dumps(document, ensure_ascii=False)}\n\n")

    async with aclosing(said):  # a client that disconnects ends its request in the engine
        async for part in said:
            if isinstance(part, list):
                yield [chunk(each) for each in part]
            elif isinstance(part, str):
                yield chunk(part)
            else:
                for choice in getattr(part, "choices", ()):
                    _make_valid(choice.message)
                    answer = _Answer()
                    answer.add(choice.message.model_dump(), choice.token_ids)
                    if not isinstance(choice.stop_reason, str):
                        keep(answer)
                    if not show_tokens:
                        choice.token_ids = None
                if not show_tokens and hasattr(part, "prompt_token_ids"):
                    part.prompt_token_ids = None
                yield part


def _make_valid(message: Any) -> None:
    """Makes the texts of an answer valid Unicode: the parsers of calls decode what JSON spells, halves of pairs too."""
    message.content = valid_text(message.content) if message.content else message.content
    for call in message.tool_calls or ():
        call.function.name = valid_text(call.function.name)
        call.function.arguments = valid_text(call.function.arguments)


async def _read(engine: Any, prompt: Sequence[int], adapter: Any) -> None:
    from vllm import SamplingParams
    from vllm.exceptions import VLLMClientError

    once = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False)
    with suppress(ValueError, VLLMClientError):  # an error of the prompt is raised by its own request
        async with aclosing(
            engine.generate({"prompt_token_ids": list(prompt)}, once, f"read-{uuid.uuid4()}", lora_request=adapter)
        ) as parts:
            async for _ in parts:
                pass


def _is_constrained(request: Any) -> bool:
    response_format = request.response_format
    return request.structured_outputs is not None or (response_format is not None and response_format.type != "text")


def _document(tool: Any) -> dict[str, Any]:
    """The tool's document as its client wrote it; vLLM's models leave out keys that OpenAI's do not have."""
    function = tool.function
    known = {key: getattr(function, key) for key in ("name", "description", "parameters")}
    given = {key: value for key, value in known.items() if key in function.model_fields_set}
    return {**given, **(function.model_extra or {})}


async def _refused(message: str, *, param: str | None = None, code: str | None = None) -> AsyncGenerator[Any, None]:
    from ray.serve.llm.openai_api_models import ErrorResponse
    from vllm.entrypoints.serve.engine.protocol import ErrorInfo

    # The name of the kind travels in the type, as Ray hands on no other field.
    yield ErrorResponse(error=ErrorInfo(message=message, type=code or "invalid_request_error", param=param, code=400))
