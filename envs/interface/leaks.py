"""`ForbiddenAnswers`: the answers of some tasks, indexed for quick search in texts."""

import hashlib
import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from envs.interface.readings import ValueReading, Word, read_words
from envs.interface.vocabulary import EVERYDAY, is_public, is_public_number, plain_letters, tokens, tool_names
from envs.task import JSON, Task, ToolCall
from envs.text import leaves, windows

RUN_OF_WORDS = 6
"""Consecutive words of a user's text, or of a long value, that may not be repeated."""
CALLS_OF_A_TURN = 3
"""Consecutive calls of one turn that may not be named in order."""
CALLS_OF_A_TASK = 4
"""The same for calls of several turns."""
_CALLS = (CALLS_OF_A_TURN, CALLS_OF_A_TASK)

_SHORTEST = 3
"""Letters and digits of a value; shorter ones ("in", "l", two digits) reveal nothing."""
_ALONE = 8
"""Letters of a value that is found also inside other words; shorter ones must be words."""
_ALONE_WITH_DIGITS = 6
"""The same for a value with a digit."""
_ORDINARY_WORDS = 2
"""A value of so many ordinary words can occur in general advice by accident."""
_INDEXED = 64
"""Letters and digits of a value that are stored."""
_HEAD = 6
_QUOTES = frozenset("\"'`“”‘’«»‹›„")
_GIVEN = frozenset("=#@")
"""Marks in front of a value."""
_CALL = re.compile(r"(?P<name>[A-Za-z_]\w*)\s*\((?P<arguments>[^()]{1,400})\)")
_NAME, _ARGUMENTS = r"\bname\W{1,6}(?P<name>\w+)", r"\b(?:arguments|parameters)\W{1,6}(?P<arguments>[^{}]{1,400})"
_JSON_CALLS = (re.compile(rf"{_NAME}\W{{1,6}}{_ARGUMENTS}"), re.compile(rf"{_ARGUMENTS}[{{}}]\W{{1,6}}{_NAME}"))
_WHOLE = re.compile(r"(\d+)\.0+\b")
_CAPITALS = re.compile(r"[A-Z]{3,}")
_DECIMAL = re.compile(r"\d+\.\d+")


class Leak(StrEnum):
    """The kind of answer that a text contains."""

    VALUE = "an argument value of a task"
    CALL = "a call of a task's ground truth"
    ORDER = "the calls of a task in their order"
    TEXT = "a passage of a task's text"


@dataclass(frozen=True)
class Signs:
    """The lookups of a reading besides its words, computed once for all `ForbiddenAnswers`."""

    reading: ValueReading
    calls: frozenset[str]
    """Calls that are written out."""
    orders: frozenset[tuple[str, ...]]
    """Sequences of tools that are named."""
    runs: frozenset[bytes]
    """Digests of runs of words."""

    @classmethod
    def of(cls, reading: ValueReading) -> Self:
        named = _tools_named(reading.words)
        # "find", "add" and others are everyday words, too: a list may be interrupted by them, or may consist of them.
        lists = [named, [name for name in named if name not in EVERYDAY]]
        orders = (window for names in lists for size in _CALLS for window in windows(_without_repeats(names), size))
        matches = (match for pattern in (_CALL, *_JSON_CALLS) for match in pattern.finditer(reading.text))
        wide = reading.wide
        calls = (form for match in matches for form in _call_forms(match["name"], match["arguments"], wide=wide))
        runs = map(_digest, windows(tokens(reading.text, wide=wide), RUN_OF_WORDS))
        return cls(reading, frozenset(calls), frozenset(orders), frozenset(runs))


class ForbiddenAnswers:
    """The argument values, calls, orders of calls and user texts of tasks.

    * A value leaks if its letters and digits follow each other, whatever is between them. Public values and values of
      fewer than three letters or digits do not count, except decimal numbers. A value of one or two ordinary words
      leaks only if it is marked as a value (in quotes, behind "=", "#" or "@", by its capitals, or as one word), or
      had to be decoded.
    * A call leaks if it is written out with its arguments, as text or JSON, however public these are.
    * The tools of three consecutive calls of one turn, or of four of one task, leak if they are named in order;
      repeated calls count as one.
    * Six consecutive words of a user's text leak, unless each of them is a word of the documentation.

    `ids` are the tasks' ids.
    """

    def __init__(self) -> None:
        self.ids: set[str] = set()
        self._short: dict[str, set[str]] = {}
        self._beginnings: set[str] = set()
        self._long: dict[str, set[str]] = {}
        self._decimals: set[str] = set()
        self._calls: set[str] = set()
        self._orders: set[tuple[str, ...]] = set()
        self._runs: set[bytes] = set()

    def add(self, task: Task) -> None:
        """Indexes a task, once per id."""
        if task.id in self.ids:
            return
        self.ids.add(task.id)
        for turn in task.turns:
            self._add_text(turn.user or "")
            for call in turn.ground_truth:
                self._add_call(call)
        names = [[call.name for call in turn.ground_truth] for turn in task.turns]
        for turn_names in names:
            self._orders.update(windows(_without_repeats(turn_names), CALLS_OF_A_TURN))
        self._orders.update(windows(_without_repeats(list(itertools.chain(*names))), CALLS_OF_A_TASK))

    def find(self, signs: Signs) -> Leak | None:
        """The answer that a reading contains, if any."""
        if not self.ids:
            return None
        if self._tells_value(signs.reading):
            return Leak.VALUE
        if not self._calls.isdisjoint(signs.calls):
            return Leak.CALL
        if not self._orders.isdisjoint(signs.orders):
            return Leak.ORDER
        if not self._runs.isdisjoint(signs.runs):
            return Leak.TEXT
        return None

    def _add_call(self, call: ToolCall) -> None:
        for value in leaves(dict(call.arguments)):
            if isinstance(value, str):
                self._add_value(value)
            elif not isinstance(value, bool | None) and math.isfinite(value):
                self._add_value(_digits(value))
        if not call.arguments:
            return
        bare = " ".join(map(_written, call.arguments.values()))
        keyed = " ".join(f"{key} {_written(value)}" for key, value in call.arguments.items())
        for wide in _ways(f"{call.name} {keyed}"):
            for each in (keyed, bare):
                self._calls |= _call_forms(call.name, each, wide=wide)

    def _add_value(self, value: str) -> None:
        text = plain_letters(value)
        if _DECIMAL.fullmatch(text) and not is_public_number(_decimal(text)) and not _decimal(text).endswith("."):
            self._decimals.add(_decimal(text))
        for wide in _ways(text):
            self._index_value(value, text, wide=wide)

    def _index_value(self, value: str, text: str, *, wide: bool) -> None:
        """`text` is the value in plain letters."""
        words = read_words(text, wide=wide)
        compact = "".join(word.text for word in words)
        if len(compact) < _SHORTEST or is_public(" ".join(word.text for word in words)) or is_public_number(value):
            return
        self._add_text(value)
        ordinary = len(words) <= _ORDINARY_WORDS and all(word.ordinary for word in words)
        alone = len(compact) >= (_ALONE_WITH_DIGITS if any(map(str.isdigit, compact)) else _ALONE)
        if alone and not ordinary:
            kept = compact[:_INDEXED]
            self._long.setdefault(kept[:_HEAD], set()).add(kept)
        else:
            self._short.setdefault(compact, set()).add(text)
            self._beginnings.update(compact[:end] for end in range(1, len(compact) + 1))

    def _add_text(self, text: str) -> None:
        plain = plain_letters(text)
        runs = windows(tokens(plain, wide=not plain.isascii()), RUN_OF_WORDS)
        self._runs.update(_digest(run) for run in runs if not all(map(is_public, run)))

    def _tells_value(self, reading: ValueReading) -> bool:
        compact = reading.compact
        for start in range(len(compact) - _HEAD + 1):
            for value in self._long.get(compact[start : start + _HEAD], ()):
                if compact.startswith(value, start):
                    return True
        words = reading.words
        capitals = () if reading.turned else _CAPITALS.findall(reading.text)
        if any(run in self._short.get(run.lower(), ()) for run in capitals):
            return True
        for start in range(len(words)):
            joined = ""
            for end in range(start, len(words)):
                joined += words[end].text
                if joined not in self._beginnings:
                    break
                forms = self._short.get(joined)
                if forms is not None and _counts(words[start : end + 1], forms, turned=reading.turned):
                    return True
        return any(
            before.text.isdigit()
            and before.after.strip() in (".", ",")
            and _decimal(f"{before.text}.{after.text}") in self._decimals
            for before, after in itertools.pairwise(words)
        )


def _counts(span: Sequence[Word], forms: set[str], *, turned: bool) -> bool:
    """Whether words that spell a value are a leak, or an accident. `forms` are ways to write the value."""
    # Single letters next to whole words are prose ("a, b and c"); letters alone spell something.
    if any(not word.ordinary and len(word.text) > 1 for word in span) or all(len(word.text) == 1 for word in span):
        return True
    if turned and all(word.ordinary for word in span):
        return False
    if len(span) > 1 and not any(any(map(str.isspace, word.before)) for word in span[1:]):
        return True
    if turned:
        return False
    before, after = span[0].before.rstrip(), span[-1].after
    if before[-1:] in _GIVEN or (span[0].before[-1:] in _QUOTES and after[:1] in _QUOTES):
        return True
    written = span[0].written + "".join(word.before + word.written for word in span[1:])
    return written in forms and written[1:] != written[1:].lower()


def _tools_named(words: Sequence[Word]) -> list[str]:
    """The tools that the words name, in order; the longest name counts."""
    names, beginnings = tool_names()
    tools, start = [], 0
    while start < len(words):
        joined, length, name = "", 0, ""
        for end in range(start, len(words)):
            joined += words[end].text
            if joined not in beginnings:
                break
            if joined in names:
                name, length = names[joined], end + 1 - start
        if length:
            tools.append(name)
        start += length or 1
    return tools


def _without_repeats(names: Sequence[str]) -> list[str]:
    return [name for name, _ in itertools.groupby(names)]


def _digest(run: Sequence[str]) -> bytes:
    return hashlib.blake2b(" ".join(run).encode(), digest_size=8).digest()


def _ways(text: str) -> tuple[bool, ...]:
    """Whether to read its words wide: both ways if that makes a difference."""
    return (False,) if text.isascii() else (False, True)


def _compact(text: str, *, wide: bool) -> str:
    return "".join(tokens(plain_letters(text), wide=wide))


def _call_forms(name: str, arguments: str, *, wide: bool) -> set[str]:
    """A call in letters and digits alone, and with the words of its arguments sorted, since their order is free."""
    words = tokens(plain_letters(_WHOLE.sub(r"\1", arguments)), wide=wide)
    return {f"{_compact(name, wide=wide)} {each}" for each in ("".join(words), " ".join(sorted(words)))}


def _written(value: JSON) -> str:
    return ", ".join(str(leaf) for leaf in leaves(value) if leaf is not None)


def _digits(value: float) -> str:
    """A number without sign and exponent; whole ones without a decimal point."""
    return str(abs(int(value))) if value == int(value) else f"{abs(value):.12f}".rstrip("0")


def _decimal(text: str) -> str:
    """A decimal number in its shortest form; a whole one ends in the point."""
    whole, _, fraction = text.partition(".")
    return f"{whole.lstrip('0') or '0'}.{fraction.rstrip('0')}"
