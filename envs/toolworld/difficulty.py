"""The difficulty of generated tasks: checked ranges and switches, with a short code for task ids."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from envs.errors import UserError

Range = tuple[int, int]
"""Least and greatest value, both included."""

_ALLOWED: Mapping[str, Range] = {
    "turns": (1, 8),
    "calls_per_turn": (1, 4),
    "distractor_tools": (0, 10),
    "state_size": (2, 8),
    "shown_tools": (10, 60),
}
_NUMBERS = r"(0|[1-9][0-9]?)-(0|[1-9][0-9]?)"
_CODE = re.compile(rf"t{_NUMBERS}_c{_NUMBERS}_(?:d{_NUMBERS}|n{_NUMBERS})_s{_NUMBERS}(_r1)?(_v1)?")


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The ranges that a task is drawn from, and two switches. Raises `UserError` for values that are not allowed.

    Args:
        turns: The user's requests; miss_func and miss_param add one turn.
        calls_per_turn: Ground-truth calls in a turn that has any.
        distractor_tools: Tools that nothing needs, as far as the simulators have so many.
        state_size: About the number of files, contacts, tickets or stocks at the start; times five in long_context.
        shown_tools: If given, simulators are shown whole, as in the benchmark, and more are added up to this number of
            tools; `distractor_tools` becomes (0, 0). Needed tools are always shown.
        referring: Adds requests whose values appear in earlier results.
        varied: Longer and more varied language.
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
        """Whether tasks avoid the benchmark's names: if they are made to look like its tasks."""
        return self.shown_tools is not None or self.referring or self.varied

    @property
    def code(self) -> str:
        """The code for an id, such as "t2-3_c1-2_d1-3_s2-4" or "t3-8_c1-4_n20-40_s3-6_r1_v1"."""
        tools = ("d", self.distractor_tools) if self.shown_tools is None else ("n", self.shown_tools)
        ranges = (("t", self.turns), ("c", self.calls_per_turn), tools, ("s", self.state_size))
        parts = [f"{letter}{low}-{high}" for letter, (low, high) in ranges]
        return "_".join((*parts, *(["r1"] if self.referring else []), *(["v1"] if self.varied else [])))

    @classmethod
    def from_code(cls, code: str) -> Self:
        """The difficulty of a code. Raises `UserError` for any other text."""
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
LONG = Difficulty((3, 8), (1, 4), state_size=(3, 6), shown_tools=(20, 40), referring=True, varied=True)
"""Dialogues about as long as the benchmark's."""
NAMED: Mapping[str, Difficulty] = {"long": LONG}
"""Difficulties with a name, which is accepted instead of a code. Ids contain the code."""


def difficulty_of(code: str | None) -> Difficulty:
    """The difficulty of a code or name, or the default for None. Raises `UserError` for any other text."""
    return DEFAULT if code is None else NAMED.get(code) or Difficulty.from_code(code)
