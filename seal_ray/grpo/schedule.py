"""Schedules: the learning rate's, a factor for every step, and that of values which fade over the rounds of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from envs.errors import UserError, unknown_value

Decay = Literal["constant", "linear", "cosine"]
_DECAYS = ("constant", "linear", "cosine")


def faded(start: float, end: float | None, *, begin: float, round_number: int, rounds: int) -> float:
    """A value in a round, counted from 0: `start` up to the share `begin` of the run, then linearly to `end`.

    Without an end it stays as it is, and so it does where it would begin with the last round or later.
    """
    if end is None:
        return start
    first = begin * rounds
    left = rounds - 1 - first
    if left <= 0:
        return start
    return start + (end - start) * min(1.0, max(0.0, (round_number - first) / left))


@dataclass(frozen=True, slots=True)
class Schedule:
    """Linear warm-up, then a decay. Raises `UserError` for values out of range."""

    decay: Decay = "constant"
    warm_up: int = 0
    """Steps until the full rate: the first has 1 / `warm_up` of it, since a step at rate 0 would be wasted."""
    total: int | None = None
    """The step, counted from 0, at which the floor is reached, or else the end of the warm-up where that is later;
    needed unless the rate is constant."""
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
        """What the learning rate is multiplied by at a step, counted from 0."""
        if step < self.warm_up:
            return (step + 1) / self.warm_up
        if self.decay == "constant" or self.total is None:
            return 1.0
        done = min(1.0, (step - self.warm_up) / (self.total - self.warm_up)) if self.total > self.warm_up else 1.0
        left = 1 - done if self.decay == "linear" else (1 + math.cos(math.pi * done)) / 2
        return self.floor + (1 - self.floor) * left
