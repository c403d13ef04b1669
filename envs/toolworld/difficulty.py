"""How hard a generated task is: ranges and switches, checked, with a short code that stands in the task's id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from envs.errors import UserError

Range = tuple[int, int]
"""Least and greatest value, both included."""

_ALLOWED: Mapping[str, Range] = MappingProxyType(
    {
        "turns": (1, 8),
        "calls_per_turn": (1, 4),
        "distractor_tools": (0, 10),
        "state_size": (2, 8),
        "shown_tools": (10, 60),
    }
)
_NUMBERS = r"(0|[1-9][0-9]?)-(0|[1-9][0-9]?)"
_CODE = re.compile(rf"t{_NUMBERS}_c{_NUMBERS}_(?:d{_NUMBERS}|n{_NUMBERS})_s{_NUMBERS}(_r1)?(_v1)?")


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The ranges that a task is drawn from, and two switches.

    `turns` counts the user's requests; miss_func and miss_param add the turn that makes one of them possible.
    `calls_per_turn` are ground-truth calls in a turn that has any. `distractor_tools` are shown beside the needed ones,
    as far as the simulators have so many. `state_size` is about the number of files, contacts, tickets or stocks at the
    start; long_context has five times as many.

    With `shown_tools` simulators are shown whole, as in the benchmark, further ones too, until there are so many tools;
    needed tools are always shown, and `distractor_tools` does not count: it becomes (0, 0). `referring` adds requests
    whose values stand in earlier results. `varied` puts requests into longer and more varied language.

    Raises `UserError` for what is no range or out of bounds, and for a switch that is no truth value.
    """

    turns: Range = (2, 3)
    calls_per_turn: Range = (1, 2)
    distractor_tools: Range = (1, 3)
    state_size: Range = (2, 4)
    shown_tools: Range | None = None
    referring: bool = False
    varied: bool = False

    def __post_init__(self) -> None:
        if self.shown_tools is not None:
            object.__setattr__(self, "distractor_tools", (0, 0))
        for name in _ALLOWED:
            value = getattr(self, name)
            if name != "shown_tools" or value is not None:
                object.__setattr__(self, name, _checked_range(name, value))
        for name in ("referring", "varied"):
            if type(getattr(self, name)) is not bool:
                raise UserError(f"{name}: {getattr(self, name)!r:.80} is not allowed; it must be True or False.")

    @property
    def apart(self) -> bool:
        """Whether tasks hold no name that a task of the benchmark holds: where they are made to look like these."""
        return self.shown_tools is not None or self.referring or self.varied

    @property
    def code(self) -> str:
        """The difficulty in an id, for instance "t2-3_c1-2_d1-3_s2-4" or "t3-8_c1-4_n20-40_s3-6_r1_v1"."""
        tools = ("d", self.distractor_tools) if self.shown_tools is None else ("n", self.shown_tools)
        ranges = (("t", self.turns), ("c", self.calls_per_turn), tools, ("s", self.state_size))
        parts = [f"{letter}{low}-{high}" for letter, (low, high) in ranges]
        return "_".join((*parts, *(["r1"] if self.referring else []), *(["v1"] if self.varied else [])))

    @classmethod
    def from_code(cls, code: str) -> Difficulty:
        """The difficulty that `code` names. Raises `UserError` for any other text."""
        match = _CODE.fullmatch(code)
        if match is None:
            names = " or ".join(NAMED)
            raise UserError(f"difficulty: {code!r:.80} cannot be read; the form is {DEFAULT.code}, or {names}.")
        *numbers, referring, varied = match.groups()
        turns, calls, distractors, shown, state = (
            None if low is None else (int(low), int(high))
            for low, high in zip(numbers[::2], numbers[1::2], strict=True)
        )
        assert turns
        assert calls
        assert state
        return cls(turns, calls, distractors or (0, 0), state, shown, referring is not None, varied is not None)


def _checked_range(name: str, value: object) -> Range:
    low, high = _ALLOWED[name]
    match value:
        case [int() as least, int() as greatest] if low <= least <= greatest <= high and bool not in map(type, value):
            return least, greatest
    raise UserError(
        f"{name}: {value!r:.80} is not allowed; it must be two whole numbers (least, greatest) with "
        f"{low} <= least <= greatest <= {high}."
    )


DEFAULT = Difficulty()
LONG = Difficulty(
    turns=(3, 8), calls_per_turn=(1, 4), state_size=(3, 6), shown_tools=(20, 40), referring=True, varied=True
)
"""Dialogues about as long as the benchmark's."""
NAMED: Mapping[str, Difficulty] = MappingProxyType({"long": LONG})
"""The difficulties that have a name, which is accepted wherever a code is. Ids have the code."""


def difficulty_of(code: str | None) -> Difficulty:
    """The difficulty of that code or name, or the default one for None. Raises `UserError` for any other text."""
    if code is None:
        return DEFAULT
    return NAMED.get(code) or Difficulty.from_code(code)
