"""The Qwen2.5 (hermes) dialect: `<tool_call>` blocks that each hold one JSON object with name and arguments."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from envs.dialects.base import (
    MAX_CHARACTERS,
    Dialect,
    ParsedCompletion,
    Settled,
    call_from,
    first_errors,
    partial_length,
    read_json,
    without_mark,
)
from envs.task import ToolCall, ToolDoc
from envs.trace import ParseError

_OPENING = "<tool_call>"
_THOUGHTS_END = "</think>"
_BEGIN, _END = "<tool_call>\n", "\n</tool_call>"
_HEADER = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>"
)
_CALL_FORMAT = (
    'Write each call as <tool_call>, a line with {"name": …, "arguments": {…}} in valid JSON, and </tool_call>.'
)
_STRAY = "<tool_call> needs the JSON on lines of its own and a closing </tool_call>"
_FOOTER = (
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
    '<tool_call></tool_call> XML tags:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n'
    "</tool_call>"
)


@dataclass(frozen=True, slots=True)
class Qwen(Dialect):
    """Decodes as the official Qwen function-calling handler does, but evaluates no strings."""

    name: str = "qwen"
    result_role: str = "tool"
    tools_in_system: bool = False
    call_format: str = _CALL_FORMAT
    markup: tuple[str, ...] = tuple(
        f"<{end}{tag}>" for tag in ("tool_call", "tool_response", "tools") for end in ("", "/")
    )
    own_words: tuple[str, ...] = (_CALL_FORMAT, _STRAY)

    def render_tools(self, tools: Sequence[ToolDoc]) -> str:
        return _HEADER + "".join(f"\n{json.dumps(dict(tool.document))}" for tool in tools) + _FOOTER

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        objects = (without_mark(json.dumps(call.to_dict()), _THOUGHTS_END) for call in calls)
        return "\n".join(f"<tool_call>\n{each}\n</tool_call>" for each in objects)

    def render_result(self, result: str) -> str:
        return f"<tool_response>\n{result}\n</tool_response>"

    def spoken(self, completion: str) -> str:
        begin = _behind_thoughts(completion)
        return completion[begin:].lstrip("\n") if begin else completion

    def parse(self, completion: str) -> ParsedCompletion:
        position = _behind_thoughts(completion)
        first = completion.find(_OPENING, position)
        if first >= 0 and len(completion) > MAX_CHARACTERS:
            return ParsedCompletion(
                errors=(ParseError(first, f"tool calls fit into {MAX_CHARACTERS} characters at most"),)
            )
        calls: list[ToolCall] = []
        errors: list[ParseError] = []
        spans: list[tuple[int, int]] = []
        quoted = False
        for start, end, content in _blocks(completion, position):
            errors += _stray_opening(completion, position, start)
            position = end
            try:
                value = read_json(content)
            except ValueError as error:
                # The official decoder skips a block that is no JSON, and keeps the others.
                errors.append(ParseError(start, f"the tool call is not valid JSON: {error}", fatal=False))
                continue
            try:
                if isinstance(value, dict) and isinstance(value.get("arguments"), str):
                    # Models sometimes quote the arguments object; the official decoder unquotes it.
                    quoted, value = True, {**value, "arguments": read_json(value["arguments"])}
                calls.append(call_from(value, "arguments"))
                spans.append((start, end))
            except ValueError as error:
                errors.append(ParseError(start, str(error)))
        errors += _stray_opening(completion, position, len(completion))
        return ParsedCompletion(tuple(calls), first_errors(errors), quoted, tuple(spans))

    def stream(self) -> Settled:
        """All after a call is unsettled: a later `</think>` would make it a thought."""
        begin, call = 0, -1  # where blocks are searched, since none is open there; the start of the first call

        def settled(completion: str) -> int:
            nonlocal begin, call
            thoughts = _behind_thoughts(completion)
            if thoughts > begin:
                begin, call = thoughts, -1
            if len(completion) > MAX_CHARACTERS and _OPENING in completion:
                return len(completion)
            while call < 0:
                start = completion.find(_BEGIN, begin)
                if start < 0:
                    return len(completion) - partial_length(completion, _BEGIN, begin)
                close = completion.find(_END, start + len(_BEGIN))
                if close < 0:
                    return start
                begin = close + len(_END)
                if self.parse(completion[start:begin]).calls:
                    call = start
            return call

        return settled


def _behind_thoughts(completion: str) -> int:
    """The end of a reasoning model's thoughts: the official handler drops everything up to the last such mark."""
    return completion.rfind(_THOUGHTS_END) + len(_THOUGHTS_END) if _THOUGHTS_END in completion else 0


def _blocks(text: str, begin: int) -> Iterator[tuple[int, int, str]]:
    """(start, end, content) of each match of the official `<tool_call>\\n(.*?)\\n</tool_call>`, in linear time."""
    start = text.find(_BEGIN, begin)
    while start >= 0:
        close = text.find(_END, start + len(_BEGIN))
        if close < 0:
            return
        end = close + len(_END)
        yield start, end, text[start + len(_BEGIN) : close]
        start = text.find(_BEGIN, end)


def _stray_opening(text: str, start: int, end: int) -> list[ParseError]:
    """The first opening tag in a part without complete blocks; the official decoder ignores it."""
    position = text.find(_OPENING, start, end)
    return [] if position < 0 else [ParseError(position, _STRAY, fatal=False)]
