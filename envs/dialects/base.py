"""What a dialect is: how one model family is shown tools, writes calls, and is shown results.

A dialect is a value chosen from the model's configuration. Its functions are pure and never raise, whatever the text.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from envs.task import JSON, ToolCall, ToolDoc
from envs.text import depth
from envs.trace import ParseError

MAX_NESTING = 64
"""Levels of lists and objects in a call beyond which it is a parse error; the deepest documented argument has 2."""
MAX_CHARACTERS = 100_000
"""Length beyond which JSON is not parsed; a response of 4,096 tokens is far below it."""
MAX_ERRORS = 16
"""Parse errors reported of one completion at most."""


@dataclass(frozen=True, slots=True)
class ParsedCompletion:
    """A completion read as calls. `calls` holds every well-formed call in order, whatever the errors beside it.

    `quoted` says that the arguments of some call came as text, which was read as well.
    """

    calls: tuple[ToolCall, ...] = ()
    errors: tuple[ParseError, ...] = ()
    quoted: bool = False

    @property
    def official_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the official decoder returns: none where an error is fatal to it."""
        return () if any(error.fatal for error in self.errors) else self.calls

    @property
    def graded_calls(self) -> tuple[ToolCall, ...]:
        """The same where an answer is graded by its calls: of one with quoted arguments it then returns none."""
        return () if self.quoted else self.official_calls


@dataclass(frozen=True, slots=True)
class Dialect(ABC):
    """One model family's way of calling tools."""

    name: str
    """The name used in configurations."""
    result_role: str
    """The chat role under which tool results go back."""
    tools_in_system: bool
    """Whether tools are shown by `render_tools` in a system message, and not by the model's chat template."""
    call_format: str
    """One sentence that tells a model how to write a call; shown by the interface's format cue."""
    markup: tuple[str, ...] = ()
    """The marks that give a text a meaning in prompts: where they stand in content, they are broken up."""
    own_words: tuple[str, ...] = ()
    """The sentences in which the dialect explains its markup to a model. There the marks stay whole."""

    @abstractmethod
    def render_tools(self, tools: Sequence[ToolDoc]) -> str:
        """The text that shows the tools, as the official handler of the family words it."""

    @abstractmethod
    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """A completion that parses into exactly these calls."""

    def render_result(self, result: str) -> str:
        """One tool result as it stands in the text of an observation."""
        return result

    def spoken(self, completion: str) -> str:
        """What the official handler takes for the completion: all of it, or what stands behind a model's thoughts."""
        return completion

    @abstractmethod
    def parse(self, completion: str) -> ParsedCompletion:
        """Reads a completion. Never raises."""


def tool_documents(tools: Sequence[ToolDoc]) -> list[dict[str, JSON]]:
    """The tools' JSON documents, as chat templates take them in their `tools` argument."""
    return [dict(tool.document) for tool in tools]


def too_deep(text: str) -> bool:
    """Whether brackets are nested deeper than `MAX_NESTING`, by counting alone: checked before a parser recurses.

    Brackets in strings count too, so that closing ones there can hide others: what is read is checked by `check_depth`.
    """
    if sum(map(text.count, "([{")) <= MAX_NESTING:
        return False
    level = 0
    for character in text:
        if character in "([{":
            level += 1
            if level > MAX_NESTING:
                return True
        elif character in ")]}":
            level -= 1
    return False


def check_size(text: str) -> None:
    """Raises `ValueError` for JSON too long or too deep to parse in good time."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_CHARACTERS} characters")
    if too_deep(text):
        raise ValueError(f"brackets are nested deeper than {MAX_NESTING}")


def check_depth(value: JSON) -> None:
    """Raises `ValueError` for a value that is nested deeper than `MAX_NESTING`: copying it would recurse."""
    if depth(value) > MAX_NESTING:
        raise ValueError(f"brackets are nested deeper than {MAX_NESTING}")


def first_errors(errors: Sequence[ParseError]) -> tuple[ParseError, ...]:
    """At most `MAX_ERRORS` of them, in order; the first fatal one is always among them."""
    kept, rest = errors[:MAX_ERRORS], errors[MAX_ERRORS:]
    fatal = [] if any(error.fatal for error in kept) else [error for error in rest if error.fatal]
    return (*kept, *fatal[:1])


def read_json(text: str) -> JSON:
    """`json.loads` for hostile text: raises `ValueError` and nothing else."""
    check_size(text)
    try:
        value: JSON = json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    check_depth(value)
    return value


def without_mark(text: str, mark: str) -> str:
    """JSON that means the same, in which the mark does not stand: where a handler would take it for more than text."""
    return text.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")


def call_from(value: JSON, arguments_key: str) -> ToolCall:
    """A call from its decoded JSON object `{"name": …, arguments_key: {…}}`. Raises `ValueError` with the reason."""
    if not isinstance(value, dict):
        raise ValueError("a tool call must be a JSON object")
    name, arguments = value.get("name"), value.get(arguments_key)
    if isinstance(name, bool | int | float) or (name is None and "name" in value):
        name = str(name)  # as the official decoders write it: a tool that is not there
    if not isinstance(name, str):
        raise ValueError('a tool call needs a "name" that is a string')
    if not isinstance(arguments, dict):
        raise ValueError(f'a tool call needs "{arguments_key}" that is a JSON object')
    return ToolCall(name, arguments)
