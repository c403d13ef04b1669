"""A replica of the model: Ray's `LLMServer` with vLLM in it, and prompts as in training."""

import asyncio
import sys
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ray.serve.llm import LLMConfig
from ray.serve.llm.deployment import LLMServer

from envs.errors import UserError
from policies.models import open_model
from seal_ray.serving.answers import AnswerRules, AnswerWriter, Thoughts
from seal_ray.serving.prompt import ServedFormat, TooLong, is_small
from seal_ray.serving.queues import SHORT_PROMPT, ReadingQueue
from seal_ray.serving.schemas import grammar_schema
from seal_ray.serving.start import ComputingCore

if TYPE_CHECKING:
    from ray.llm._internal.serve.core.configs.openai_api_models import ChatCompletionRequest, CompletionRequest

_SHORT_CHAT = 64
"""Messages of a chat that is rendered concurrently with long ones, which are rendered one after the other."""
_SHORT_TEXT = 32_768
"""Characters and values of such a chat, including its tools and calls."""
_PREFERENCE = 20.0
"""Largest bias of a client to a token's logit in structured answers; control tokens have -100."""
_SWITCH_INTERVAL = 0.0005
"""Seconds after which a rendering thread yields to the one that answers everybody."""


class Server(LLMServer):
    """Renders each chat by the model's `ServedFormat`; the rest is Ray's and vLLM's.

    `context` and `response` bound the tokens of a request and of an answer, `reading` those of prompts that the engine
    reads at a time.
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

    async def chat(self, request: "ChatCompletionRequest", raw_request_info: Any = None) -> AsyncGenerator[Any, None]:
        """Answers a chat, with a 400 if its messages cannot be a dialogue or have too many tokens."""
        try:
            token_ids = await self._rendered(request)
            rules = self._answer_rules(request)
            asked = request.max_completion_tokens or request.max_tokens
            self._bound(request, asked or self._context - len(token_ids))
        except UserError as error:
            return _refused(error, "messages")
        request.max_completion_tokens = None
        if rules.with_tools or "skip_special_tokens" not in request.model_fields_set:
            request.skip_special_tokens = False  # the whole completion, as the solver's dialogues read it
        if not request.ignore_eos:
            request.stop_token_ids = [*(request.stop_token_ids or ()), *self._format.stop_token_ids]
        # Calls are read here, by the dialect.
        request.tools, request.tool_choice = None, "none"
        # vLLM accepts the tokens of a prompt that another of its processes has rendered.
        request.kv_transfer_params = {"prompt_token_ids": list(token_ids)}
        # It does not need them any more, and would go through all of them.
        request.messages = request.messages[-1:]
        show_tokens, request.return_token_ids = bool(request.return_token_ids), True
        writer = AnswerWriter(
            rules,
            lambda answer: self._format.keep(token_ids, answer.message(), answer.token_ids),
            show_tokens=show_tokens,
        )
        return writer.answers(self.read_first([token_ids], request, partial(super().chat, request, raw_request_info)))

    def _answer_rules(self, request: "ChatCompletionRequest") -> AnswerRules:
        """How the answer is read. A call that must be made gets a grammar, which vLLM makes from the tools."""
        from vllm.sampling_params import StructuredOutputsParams
        from vllm.tool_parsers.utils import get_json_schema_from_tools

        choice: Any = request.tool_choice
        forced: bool | str = choice not in (None, "none", "auto")
        if forced:
            forced = True if isinstance(choice, str) else str(choice.function.name)
            for tool in request.tools or ():
                tool.function.parameters = grammar_schema(tool.function.parameters or {}, "tools")
            try:
                # One call: a small model would write an endless list.
                schema = get_json_schema_from_tools(choice, request.tools, parallel_tool_calls=False)
            except ValueError as error:
                raise UserError(f"tool_choice: {error}") from None
            if not schema:
                raise UserError("tool_choice: a call is required, and there are no tools.")
            request.structured_outputs, request.response_format = StructuredOutputsParams(json=schema), None
        free = not _is_constrained(request)
        return AnswerRules(
            self._format.dialect,
            self._format.thoughts if free else Thoughts.NONE,
            with_tools=bool(request.tools) and choice != "none" and (free or bool(forced)),
            forced=forced,
            parallel=request.parallel_tool_calls is not False,
        )

    async def completions(
        self, request: "CompletionRequest", raw_request_info: Any = None
    ) -> AsyncGenerator[Any, None]:
        try:
            prompts = await self._tokenised(request)
            self._bound(request, request.max_tokens or self._response)
        except UserError as error:
            return _refused(error, "prompt")
        return self.read_first(prompts, request, partial(super().completions, request, raw_request_info))

    async def _rendered(self, request: "ChatCompletionRequest") -> tuple[int, ...]:
        messages = request.messages
        tools = [_document(tool) for tool in request.tools or ()]
        pool = self._short if len(messages) <= _SHORT_CHAT and is_small([messages, tools], _SHORT_TEXT) else self._long
        # An answer has at least one token.
        render = partial(self._format.prompt, messages, tools, most=self._context - 1)
        return await asyncio.get_running_loop().run_in_executor(pool, render)

    async def _tokenised(self, request: "CompletionRequest") -> list[Sequence[int]]:
        """The tokens of each prompt, which replace the request's prompt."""
        given: Any = request.prompt
        prompts = [given] if isinstance(given, str) or isinstance(given[0], int) else given

        def tokenise() -> list[Sequence[int]]:
            tokens = partial(self._format.plain, most=self._context - 1, special=request.add_special_tokens)
            return [tokens(prompt) if isinstance(prompt, str) else prompt for prompt in prompts]

        tokens = await asyncio.get_running_loop().run_in_executor(self._long, tokenise)
        if not all(tokens) or any(token >= self._format.size for each in tokens for token in each):
            raise UserError(f"prompt: it is empty, or has token ids that are not below {self._format.size}.")
        request.prompt = [list(each) for each in tokens]
        return tokens

    async def read_first(
        self, prompts: Sequence[Sequence[int]], request: Any, ask: Callable[[], Awaitable[AsyncGenerator[Any, None]]]
    ) -> AsyncGenerator[Any, None]:
        """Has the engine read long prompts into its cache, few at a time, and then answer: `ask` starts a stream."""
        engine: Any = self.engine
        adapter = engine._oai_models.lora_requests.get(request.model)
        for prompt in prompts:
            if len(prompt) > SHORT_PROMPT:
                async with self._reading.turn(len(prompt)):
                    await _read(engine._engine_client, prompt, adapter)
        async with aclosing(await ask()) as stream:
            async for part in stream:
                yield part

    def _bound(self, request: Any, asked: int) -> None:
        """Bounds the answer's tokens, and refuses token ids beyond the vocabulary, which would end the engine.

        Control tokens are kept out of a constrained answer, whatever the client prefers: the grammar has none in its
        strings, and they come only if it leaves nothing else.
        """
        request.max_tokens = min(asked, self._response)
        bias = request.logit_bias or {}
        given = [request.stop_token_ids or (), request.allowed_token_ids or (), [int(key) for key in bias]]
        if any(token >= self._format.size for ids in given for token in ids):
            raise UserError(f"token ids: the vocabulary has {self._format.size} tokens.")
        if request.min_tokens > request.max_tokens:
            raise UserError(f"min_tokens: an answer has {request.max_tokens} tokens at most.")
        if _is_constrained(request):
            preferred = {key: max(-_PREFERENCE, min(_PREFERENCE, value)) for key, value in bias.items()}
            request.logit_bias = {**preferred, **{str(token): -100.0 for token in self._format.unspoken}}


def _is_constrained(request: Any) -> bool:
    """Whether a grammar covers the whole answer."""
    form = request.response_format
    return request.structured_outputs is not None or (form is not None and form.type != "text")


async def _read(engine: Any, prompt: Sequence[int], adapter: Any) -> None:
    from vllm import SamplingParams
    from vllm.exceptions import VLLMClientError

    once = SamplingParams(max_tokens=1, temperature=0.0, detokenize=False)
    with suppress(ValueError, VLLMClientError):  # the request itself raises an error of the prompt
        async with aclosing(
            engine.generate({"prompt_token_ids": list(prompt)}, once, f"read-{uuid.uuid4()}", lora_request=adapter)
        ) as parts:
            async for _ in parts:
                pass


def _document(tool: Any) -> dict[str, Any]:
    """The tool's document as its client wrote it; vLLM's models omit keys that OpenAI's do not have."""
    function = tool.function
    known = {key: getattr(function, key) for key in ("name", "description", "parameters")}
    given = {key: value for key, value in known.items() if key in function.model_fields_set}
    return {**given, **(function.model_extra or {})}


async def _refused(error: UserError, place: str) -> AsyncGenerator[Any, None]:
    from ray.serve.llm.openai_api_models import ErrorResponse
    from vllm.entrypoints.serve.engine.protocol import ErrorInfo

    # The code travels in the type, as Ray passes on no other field.
    kind, param = ("context_length_exceeded", place) if isinstance(error, TooLong) else ("invalid_request_error", None)
    yield ErrorResponse(error=ErrorInfo(message=str(error), type=kind, param=param, code=400))
