"""From the text of a completion to an OpenAI answer: thoughts, content and calls, whole or streamed.

The calls are the ones that the dialect's parser reads, as in training, and none in an answer that the token limit cut.
A stream has sent all content that no continuation can change; a call is whole, in a chunk of its own.
"""

import json
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from envs.dialects import Dialect
from envs.dialects.base import arguments_json, call_from, partial_length, read_json
from envs.task import ToolCall
from envs.text import valid_text

_THOUGHTS_BEGIN, _THOUGHTS_END = "<think>", "</think>"


class Thoughts(StrEnum):
    """Whether a chat template separates a model's thoughts from its answer."""

    NONE = "none"
    TAGGED = "tagged"
    """An answer may begin with `<think>`."""
    OPEN = "open"
    """The prompt has begun the thoughts."""

    def separate(self, text: str, *, is_whole: bool) -> tuple[str, str]:
        """The thoughts and the content of a text; if more may follow, the part of each that is certain."""
        if self is Thoughts.NONE:
            return "", text
        body = text.lstrip()
        if not is_whole and body != _THOUGHTS_BEGIN and _THOUGHTS_BEGIN.startswith(body):
            return "", ""
        if not body.startswith(_THOUGHTS_BEGIN) and self is Thoughts.TAGGED:
            return "", text
        thoughts, end, content = body.removeprefix(_THOUGHTS_BEGIN).partition(_THOUGHTS_END)
        if not end and not is_whole:
            thoughts = thoughts[: len(thoughts) - partial_length(thoughts, _THOUGHTS_END)]
        return thoughts.strip("\n"), content.lstrip("\n")

    def written(self, thoughts: str) -> str:
        """Thoughts as chat templates write them in front of an answer."""
        if self is Thoughts.OPEN:
            return f"{thoughts}\n{_THOUGHTS_END}\n\n"
        return f"{_THOUGHTS_BEGIN}\n{thoughts}\n{_THOUGHTS_END}\n\n" if thoughts else ""


@dataclass(frozen=True, slots=True)
class AnswerRules:
    """How an answer is read: by the dialect, `with_tools` if there are any.

    With `forced` a grammar makes the answer JSON: a list of calls, or the arguments of the function of that name.
    """

    dialect: Dialect
    thoughts: Thoughts = Thoughts.NONE
    with_tools: bool = True
    forced: bool | str = False
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class AnswerPart:
    """The next part of an answer; only the last has calls."""

    thoughts: str = ""
    content: str = ""
    calls: tuple[ToolCall, ...] = ()


class AnswerReader:
    """Reads one completion as it arrives. `token_ids` are its tokens so far."""

    def __init__(self, rules: AnswerRules) -> None:
        self._rules = rules
        self._settled = rules.dialect.stream()
        self._text = ""
        self.thoughts = ""
        self.content = ""
        self.calls: tuple[ToolCall, ...] = ()
        self.token_ids: list[int] = []

    def add(self, text: str) -> AnswerPart:
        """Reads more text. Returns what no continuation can change and was not returned before."""
        self._text += text
        if self._rules.forced:
            return AnswerPart()
        settled = self._settled(self._text) if self._rules.with_tools else len(self._text)
        return self._part(self._text[:settled], is_whole=False)

    def end(self, *, is_cut: bool) -> AnswerPart:
        """The rest of the answer. One that the token limit cut has no calls, as in training."""
        if is_cut or not self._rules.with_tools:
            return self._part(self._text, is_whole=True)
        if self._rules.forced:
            self.calls = _forced_calls(self._text, self._rules.forced)
            content = "" if self.calls else self._text
        else:
            parsed = self._rules.dialect.parse(self._text)
            self.calls, content = parsed.calls, parsed.content(self._text)
        if not self._rules.parallel:
            self.calls = self.calls[:1]
        return self._part(content, is_whole=True)

    def message(self) -> dict[str, Any]:
        """The answer as a client sends it back."""
        calls = [{"function": _function(call)} for call in self.calls]
        return {
            "role": "assistant",
            "reasoning_content": self.thoughts,
            "content": self.content,
            "tool_calls": calls,
        }

    def _part(self, text: str, *, is_whole: bool) -> AnswerPart:
        thoughts, content = self._rules.thoughts.separate(text, is_whole=is_whole)
        part = AnswerPart(thoughts[len(self.thoughts) :], content[len(self.content) :], self.calls)
        self.thoughts, self.content = thoughts, content
        return part


def _forced_calls(text: str, forced: bool | str) -> tuple[ToolCall, ...]:
    """The calls in an answer that a grammar forced; none if a text of `stop` cut it."""
    try:
        value = read_json(text)
        values = [{"name": forced, "parameters": value}] if isinstance(forced, str) else value
        return tuple(call_from(each, "parameters") for each in values)
    except (ValueError, TypeError):
        return ()


def _function(call: ToolCall) -> dict[str, str]:
    return {"name": valid_text(call.name), "arguments": valid_text(arguments_json(call))}


def _entry(call: ToolCall) -> dict[str, Any]:
    return {"id": f"call_{uuid.uuid4().hex}", "type": "function", "function": _function(call)}


def _finish(reason: str, rules: AnswerRules, calls: tuple[ToolCall, ...]) -> str:
    """OpenAI's reason for the end of an answer: a call that the client named is no reason of its own."""
    return "tool_calls" if calls and reason == "stop" and not isinstance(rules.forced, str) else reason


@dataclass(slots=True)
class AnswerWriter:
    """Turns the completions of one request, as vLLM streams or returns them, into answers.

    Calls `keep` with the reader of each answer before its client gets the end, and so before its next request; not for
    one that was cut at a text of `stop`, which has more tokens than text. vLLM must return tokens; clients get them
    only with `show_tokens`.
    """

    rules: AnswerRules
    keep: Callable[[AnswerReader], None]
    show_tokens: bool
    _readers: dict[int, AnswerReader] = field(default_factory=dict)

    async def answers(self, stream: AsyncGenerator[Any, None]) -> AsyncGenerator[Any, None]:
        """The answers to the completions: chunks as texts or lists of texts, or one whole answer."""
        async with aclosing(stream):  # a client that disconnects ends its request in the engine
            async for part in stream:
                if isinstance(part, list):
                    if chunks := [chunk for each in part for chunk in self._chunks(each)]:  # Ray fails for none
                        yield chunks
                elif isinstance(part, str):
                    for chunk in self._chunks(part):
                        yield chunk
                else:
                    for choice in getattr(part, "choices", ()):
                        self._complete(choice)
                    if not self.show_tokens and hasattr(part, "prompt_token_ids"):
                        part.prompt_token_ids = None
                    yield part

    def _read(self, index: int, text: str | None, token_ids: Any, finish: str | None, stop: Any) -> list[AnswerPart]:
        reader = self._readers.setdefault(index, AnswerReader(self.rules))
        reader.token_ids += token_ids or ()
        parts = [reader.add(text or "")]
        if finish is not None:
            parts.append(reader.end(is_cut=finish == "length"))
            if not isinstance(stop, str):
                self.keep(reader)
        return parts

    def _complete(self, choice: Any) -> None:
        """Fills a whole answer."""
        from vllm.entrypoints.openai.chat_completion.protocol import ToolCall as CompletedCall

        message = choice.message
        self._read(choice.index, message.content, choice.token_ids, choice.finish_reason, choice.stop_reason)
        reader = self._readers[choice.index]
        message.content = reader.content or (None if reader.calls else "")
        message.tool_calls = [CompletedCall(**_entry(call)) for call in reader.calls]
        if reader.thoughts:
            message.reasoning_content = reader.thoughts
        choice.finish_reason = _finish(choice.finish_reason, self.rules, reader.calls)
        if not self.show_tokens:
            choice.token_ids = None

    def _chunks(self, event: str) -> Iterator[str]:
        if not event.startswith("data: {"):
            yield event
            return
        document = json.loads(event.removeprefix("data: "))
        if not self.show_tokens:
            document.pop("prompt_token_ids", None)
        deltas = [delta for choice in document.get("choices") or () for delta in self._deltas(choice)]
        for choice in deltas if document.get("choices") else [None]:
            shown = document if choice is None else {**document, "choices": [choice]}
            yield valid_text(f"data: {json.dumps(shown, ensure_ascii=False)}\n\n")

    def _deltas(self, choice: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The chunks of one: a part of thoughts, of content, or one call each, and the end by itself."""
        index, given = choice.get("index", 0), choice.get("delta") or {}
        finish = choice.get("finish_reason")
        parts = self._read(index, given.get("content"), choice.get("token_ids"), finish, choice.get("stop_reason"))
        deltas: list[dict[str, Any]] = [{"role": given["role"], "content": ""}] if "role" in given else []
        deltas += [{"reasoning_content": part.thoughts} for part in parts if part.thoughts]
        deltas += [{"content": part.content} for part in parts if part.content]
        calls = parts[-1].calls if finish is not None else ()
        deltas += [{"tool_calls": [{"index": place, **_entry(call)}]} for place, call in enumerate(calls)]
        shown = ("logprobs", "token_ids") if self.show_tokens else ("logprobs",)
        tokens = {key: choice[key] for key in shown if choice.get(key)}
        if not deltas and tokens:
            deltas = [{"content": ""}]
        for place, delta in enumerate(deltas):
            yield {"index": index, "delta": delta, "finish_reason": None, **(tokens if place == 0 else {})}
        if finish is not None:
            ended = {"index": index, "delta": {}, "finish_reason": _finish(finish, self.rules, calls)}
            yield {**ended, "stop_reason": choice.get("stop_reason")}
