"""The Llama 3.1 dialect: a completion that is a JSON object with name and parameters, or several of them."""

import bisect
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from envs.dialects.base import (
    MAX_CHARACTERS,
    Dialect,
    ParsedCompletion,
    Settled,
    call_from,
    check_depth,
    check_size,
    first_errors,
    partial_length,
    without_mark,
)
from envs.dialects.literal import literal_value, parse_expression
from envs.task import JSON, ToolCall, ToolDoc
from envs.trace import ParseError

_PYTHON_TAG = "<|python_tag|>"
_BARE_TAG = f"{_PYTHON_TAG} must be followed by a JSON tool call"
_INTRODUCTION = (
    "Given the following functions, please respond with a JSON for a function call with its proper arguments that "
    "best answers the given prompt.\n\n"
    'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.'
    "Do not use variables.\n\n"
)
_SEPARATORS = " \t\r\n;,"
_JSON_WORDS: dict[str, JSON] = {"true": True, "false": False, "null": None}
"""The meaning of JSON's words in a text with single quotes."""
_MAX_VALUES = 5_000
"""JSON values in one completion; more calls do not fit into the characters that are read."""


@dataclass(frozen=True, slots=True)
class Llama3Json(Dialect):
    """Reads what the official Llama 3.1 handler reads as JSON; that handler evaluates the text, this one does not."""

    name: str = "llama3_json"
    result_role: str = "ipython"
    tools_in_system: bool = False
    call_format: str = 'Answer with nothing but {"name": …, "parameters": {…}} in valid JSON, one object for each call.'
    markup: tuple[str, ...] = (_PYTHON_TAG,)
    own_words: tuple[str, ...] = (_BARE_TAG,)

    def render_tools(self, tools: Sequence[ToolDoc]) -> str:
        return _INTRODUCTION + "".join(f"{json.dumps(dict(tool.document), indent=4)}\n\n" for tool in tools)

    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        texts = (json.dumps({"name": call.name, "parameters": dict(call.arguments)}) for call in calls)
        objects = [without_mark(text, _PYTHON_TAG) for text in texts]
        return objects[0] if len(objects) == 1 else f"[{', '.join(objects)}]" if objects else ""

    def parse(self, completion: str) -> ParsedCompletion:
        head, rest = _leading(completion)
        parts = rest.split(_PYTHON_TAG)
        parsed = self._parse(head + "".join(parts), tagged=_PYTHON_TAG in completion)
        ends = [len(head) + end for end in itertools.accumulate(map(len, parts))][:-1]

        def with_tags(position: int) -> int:
            return position + len(_PYTHON_TAG) * bisect.bisect_right(ends, position)

        errors = tuple(replace(each, position=with_tags(each.position)) for each in parsed.errors)
        spans = tuple((with_tags(begin), with_tags(end)) for begin, end in parsed.spans)
        if spans and not errors:
            spans = ((0, len(completion)),)
        return replace(parsed, errors=errors, spans=spans)

    def stream(self) -> Settled:
        return _settled

    def _parse(self, text: str, *, tagged: bool) -> ParsedCompletion:
        """Parses a completion without its tags, which the official handler removes everywhere."""
        begin = len(text) - len(text.lstrip())
        if text[begin : begin + 1] not in ("{", "["):
            return _prose(text, begin, tagged=tagged)
        try:
            values = _read(text, begin)
        except ValueError as error:
            return ParsedCompletion(errors=(ParseError(begin, f"the tool call is not valid JSON: {error}"),))
        calls: list[ToolCall] = []
        errors: list[ParseError] = []
        spans: list[tuple[int, int]] = []
        for position, end, value in values:
            count = len(errors)
            for item in value if isinstance(value, list | tuple) else [value]:
                try:
                    calls.append(call_from(item, "parameters"))
                except ValueError as error:
                    errors.append(ParseError(position, str(error)))
            if len(errors) == count:
                spans.append((position, end))
        return ParsedCompletion(tuple(calls), first_errors(errors), spans=tuple(spans))


def _settled(completion: str) -> int:
    """Calls are the whole completion, so that all or nothing is settled."""
    complete = completion[: len(completion) - partial_length(completion, _PYTHON_TAG)]
    text = complete.replace(_PYTHON_TAG, "")
    start = text.lstrip()[:1]
    is_content = start not in ("", "{", "[") or len(text) > MAX_CHARACTERS
    return len(completion) if is_content else 0


def _leading(completion: str) -> tuple[str, str]:
    """The start of a completion, its tags as spaces, which keep all positions; and the rest."""
    begin = 0
    while (tag := completion.find(_PYTHON_TAG, begin)) >= 0 and not completion[begin:tag].strip():
        begin = tag + len(_PYTHON_TAG)
    return completion[:begin].replace(_PYTHON_TAG, " " * len(_PYTHON_TAG)), completion[begin:]


def _prose(text: str, begin: int, *, tagged: bool) -> ParsedCompletion:
    """A completion that does not begin with JSON: an answer in words, unless it contains a call."""
    call = text.find('{"name"')
    if call >= 0:
        return ParsedCompletion(errors=(ParseError(call, "a tool call must stand alone, without text around it"),))
    if tagged:
        return ParsedCompletion(errors=(ParseError(begin, _BARE_TAG),))
    return ParsedCompletion()


def _read(text: str, begin: int) -> list[tuple[int, int, JSON]]:
    try:
        return _read_sequence(text, begin)
    except ValueError as error:
        # The official handler takes the text for Python, so that single quotes work too. There a bare word is an error.
        try:
            value = literal_value(parse_expression(text[begin:].strip()), words=_JSON_WORDS)
        except ValueError:
            raise error from None
        return [(begin, len(text), value)]


def _read_sequence(text: str, begin: int) -> list[tuple[int, int, JSON]]:
    """JSON values one after another, separated by semicolons, commas or spaces.

    Returns (begin, end, value) of each. Raises `ValueError` at the first invalid one.
    """
    check_size(text)
    decoder = json.JSONDecoder()
    values: list[tuple[int, int, JSON]] = []
    items = 0
    position = begin
    while position < len(text):
        if text[position] in _SEPARATORS:
            position += 1
            continue
        try:
            value, end = decoder.raw_decode(text, position)
        except RecursionError as error:
            raise ValueError("the JSON is nested too deeply") from error
        check_depth(value)
        values.append((position, end, value))
        position = end
        items += len(value) if isinstance(value, list) else 1
        if max(len(values), items) > _MAX_VALUES:
            raise ValueError(f"it holds more than {_MAX_VALUES} values")
    return values
