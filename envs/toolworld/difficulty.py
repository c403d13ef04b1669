"""How hard a generated task is: four ranges, checked, with a short code that stands in the task's id."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields

from envs.errors import UserError

Range = tuple[int, int]
"""Least and greatest value, both included."""

_ALLOWED = {"turns": (1, 6), "calls_per_turn": (1, 4), "distractor_tools": (0, 10), "state_size": (2, 8)}
_CODE = re.compile(r"t(\d+)-(\d+)_c(\d+)-(\d+)_d(\d+)-(\d+)_s(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class Difficulty:
    """The ranges that a task is drawn from.

    `turns` counts the user's requests; miss_func and miss_param add the turn that makes one of them possible.
    `calls_per_turn` are ground-truth calls in a turn that has any. `distractor_tools` are shown beside the needed ones,
    as far as the simulators have so many. `state_size` is about the number of files, contacts, tickets or stocks at the
    start; long_context has five times as many. Raises `UserError` for what is no range or out of bounds.
    """

    turns: Range = (2, 3)
    calls_per_turn: Range = (1, 2)
    distractor_tools: Range = (1, 3)
    state_size: Range = (2, 4)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            low, high = _ALLOWED[field.name]
            is_pair = isinstance(value, tuple | list) and len(value) == 2 and all(type(each) is int for each in value)
            if not is_pair or not low <= value[0] <= value[1] <= high:
                raise UserError(
                    f"{field.name}: {value!r:.80} is not allowed; it must be two whole numbers (least, greatest) with "
                    f"{low} <= least <= greatest <= {high}."
                )
            object.__setattr__(self, field.name, tuple(value))

    @property
    def code(self) -> str:
        """The difficulty in an id, for instance "t2-3_c1-2_d1-3_s2-4"."""
        ranges = zip("tcds", (self.turns, self.calls_per_turn, self.distractor_tools, self.state_size), strict=True)
        return "_".join(f"{letter}{low}-{high}" for letter, (low, high) in ranges)

    @classmethod
    def from_code(cls, code: str) -> Difficulty:
        """The difficulty that `code` names. Raises `UserError` for any other text."""
        match = _CODE.fullmatch(code)
        if match is None:
            raise UserError(f"difficulty: {code!r:.80} cannot be read; the form is {DEFAULT.code}.")
        n = [int(group) for group in match.groups()]
        return cls((n[0], n[1]), (n[2], n[3]), (n[4], n[5]), (n[6], n[7]))


DEFAULT = Difficulty()


def difficulty_of(code: str | None) -> Difficulty:
    """The difficulty that `code` names, or the default one for None. Raises `UserError` for any other text."""
    return DEFAULT if code is None else Difficulty.from_code(code)
