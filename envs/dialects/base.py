"""The base class of dialects: how one model family is shown tools, writes calls, and is shown results.

A dialect is a value chosen from the model's configuration. Its functions are pure and never raise, whatever the text.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from envs.task import JSON, ToolCall, ToolDoc
from envs.text import depth
from envs.trace import ParseError

MAX_NESTING = 64
"""Levels of lists and objects in a call; deeper ones are parse errors. The deepest documented argument has 2."""
MAX_CHARACTERS = 100_000
"""Length of JSON that is parsed; a response of 4,096 tokens is far below it."""
MAX_ERRORS = 16
"""Reported parse errors per completion."""


@dataclass(frozen=True, slots=True)
class ParsedCompletion:
    """A parsed completion: every well-formed call in order, whatever the errors.

    `quoted` means that the arguments of some call came as text, which was parsed too. `spans` are the (begin, end) of
    the characters that the calls and their markup take.
    """

    calls: tuple[ToolCall, ...] = ()
    errors: tuple[ParseError, ...] = ()
    quoted: bool = False
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def official_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the official decoder returns: none after an error that is fatal to it."""
        return () if any(error.fatal for error in self.errors) else self.calls

    @property
    def graded_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the official graders of single answers see: none if arguments were quoted."""
        return () if self.quoted else self.official_calls

    def content(self, completion: str) -> str:
        """The completion without its calls, and without white space that only separates calls or follows them."""
        if not self.spans:
            return completion
        ends = [0, *(end for _, end in self.spans)]
        begins = [*(begin for begin, _ in self.spans), len(completion)]
        parts = [completion[end:begin] for end, begin in zip(ends, begins, strict=True)]
        return parts[0] + "".join(part for part in parts[1:] if not part.isspace())


Settled = Callable[[str], int]
"""Reads a completion as it arrives: how many characters at its start are content, whatever follows.

The rest may be a call, or may follow one. Each completion continues the one before. It takes time that grows with the
new text, apart from searches in the old.
"""


@dataclass(frozen=True, slots=True)
class Dialect(ABC):
    """One model family's way of calling tools."""

    name: str
    result_role: str
    tools_in_system: bool
    """Whether `render_tools` goes into a system message, instead of tools going into the model's chat template."""
    call_format: str
    """One sentence on how to write a call; shown by the interface's format cue."""
    markup: tuple[str, ...] = ()
    """Texts with a special meaning in prompts: inside content they are broken up."""
    own_words: tuple[str, ...] = ()
    """Sentences that explain the markup to a model: inside them it stays whole."""

    @abstractmethod
    def render_tools(self, tools: Sequence[ToolDoc]) -> str:
        """The text that shows the tools, as the family's official handler words it."""

    @abstractmethod
    def render_calls(self, calls: Sequence[ToolCall]) -> str:
        """A completion that parses into exactly these calls."""

    def render_result(self, result: str) -> str:
        """One tool result in the text of an observation."""
        return result

    def spoken(self, completion: str) -> str:
        """The part of the completion that the official handler uses: without a model's thoughts, if it has any."""
        return completion

    @abstractmethod
    def parse(self, completion: str) -> ParsedCompletion:
        """Parses a completion. Never raises."""

    @abstractmethod
    def stream(self) -> Settled:
        """The reader of a completion that arrives in parts."""


def too_deep(text: str, most: int = MAX_NESTING, brackets: str = "([{)]}") -> bool:
    """Whether brackets are nested more than `most` levels deep, by counting: checked before a parser recurses.

    Brackets in strings count too, and can hide others; `check_depth` checks the parsed value.
    """
    opening, closing = brackets[: len(brackets) // 2], brackets[len(brackets) // 2 :]
    if sum(map(text.count, opening)) <= most:
        return False
    level = 0
    for character in text:
        if character in opening:
            level += 1
            if level > most:
                return True
        elif character in closing:
            level -= 1
    return False


def check_size(text: str) -> None:
    """Raises `ValueError` for JSON that is too long or too deep to parse."""
    if len(text) > MAX_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_CHARACTERS} characters")
    if too_deep(text):
        raise ValueError(f"brackets are nested deeper than {MAX_NESTING}")


def check_depth(value: JSON) -> None:
    """Raises `ValueError` for a value that is nested too deeply to copy."""
    if depth(value) > MAX_NESTING:
        raise ValueError(f"brackets are nested deeper than {MAX_NESTING}")


def first_errors(errors: Sequence[ParseError]) -> tuple[ParseError, ...]:
    """The first `MAX_ERRORS` errors, and the first fatal one."""
    kept, rest = errors[:MAX_ERRORS], errors[MAX_ERRORS:]
    fatal = [] if any(error.fatal for error in kept) else [error for error in rest if error.fatal]
    return (*kept, *fatal[:1])


def read_json(text: str) -> JSON:
    """`json.loads` for hostile text: raises only `ValueError`."""
    check_size(text)
    try:
        value: JSON = json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    check_depth(value)
    return value


def without_mark(text: str, mark: str) -> str:
    """Equivalent JSON without the mark, to which a handler would give a special meaning."""
    return text.replace(mark, f"\\u{ord(mark[0]):04x}{mark[1:]}")


def partial_length(text: str, mark: str, begin: int = 0) -> int:
    """The length of the longest start of a mark, but not all of it, at the end of `text[begin:]`."""
    return next(size for size in range(len(mark) - 1, -1, -1) if text.endswith(mark[:size], begin))


def arguments_json(call: ToolCall) -> str:
    """The arguments of a call as a JSON object. Raises `ValueError` for NaN and infinite numbers."""
    return json.dumps(dict(call.arguments), ensure_ascii=False, allow_nan=False)


def check_finite(call: ToolCall) -> ToolCall:
    """The call. Raises `ValueError` for a number that JSON does not have."""
    try:
        arguments_json(call)
    except ValueError:
        raise ValueError("NaN and infinite numbers are not JSON") from None
    return call


def call_from(value: JSON, arguments_key: str) -> ToolCall:
    """The call in a JSON object `{"name": …, arguments_key: {…}}`. Raises `ValueError` with the reason."""
    if not isinstance(value, dict):
        raise ValueError("a tool call must be a JSON object")
    name, arguments = value.get("name"), value.get(arguments_key)
    if isinstance(name, bool | int | float) or (name is None and "name" in value):
        name = str(name)  # as the official decoders write it: a tool that is not there
    if not isinstance(name, str):
        raise ValueError('a tool call needs a "name" that is a string')
    if not isinstance(arguments, dict):
        raise ValueError(f'a tool call needs "{arguments_key}" that is a JSON object')
    return check_finite(ToolCall(name, arguments))
