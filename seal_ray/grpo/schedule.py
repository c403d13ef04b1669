"""Schedules of the learning rate over steps, and of values that fade over the rounds of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from envs.errors import UserError, unknown_value

Decay = Literal["constant", "linear", "cosine"]
_DECAYS = ("constant", "linear", "cosine")


def faded(start: float, end: float | None, *, begin: float, round_number: int, rounds: int) -> float:
    """A value in a round, counted from 0: `start` up to the share `begin` of the run, then linearly to `end`.

    It is constant without an end, and if the change would begin with the last round or later.
    """
    first = begin * rounds
    left = rounds - 1 - first
    if end is None or left <= 0:
        return start
    return start + (end - start) * min(1.0, max(0.0, (round_number - first) / left))


@dataclass(frozen=True, slots=True)
class Schedule:
    """Linear warm-up, then a decay. Raises `UserError` for values out of range."""

    decay: Decay = "constant"
    warm_up: int = 0
    """Steps until the full rate; the first has 1 / `warm_up` of it."""
    total: int | None = None
    """The step, counted from 0, that reaches the floor, at the earliest the end of the warm-up; None if constant."""
    floor: float = 0.0
    """The last factor, 0 to 1."""

    def __post_init__(self) -> None:
        if self.decay not in _DECAYS:
            raise unknown_value("decay", self.decay, _DECAYS)
        if self.warm_up < 0:
            raise UserError(f"warm_up: {self.warm_up!r} is not allowed; it is at least 0.")
        if not 0 <= self.floor <= 1:
            raise UserError(f"floor: {self.floor!r} is not allowed; it lies between 0 and 1.")
        if self.decay != "constant" and self.total is None:
            raise UserError(f"total: None is not allowed; a {self.decay} decay has an end.")

    def factor(self, step: int) -> float:
        """The factor of the learning rate at a step, counted from 0."""
        if step < self.warm_up:
            return (step + 1) / self.warm_up
        if self.decay == "constant" or self.total is None:
            return 1.0
        done = min(1.0, (step - self.warm_up) / (self.total - self.warm_up)) if self.total > self.warm_up else 1.0
        left = 1 - done if self.decay == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.floor + (1 - self.floor) * left
