"""The difficulty of a task for the solver: p̂, its success rate, with an interval."""

from __future__ import annotations

from dataclasses import dataclass

from scipy.special import betaincinv  # type: ignore[import-untyped]

LEVEL = 0.9
"""The probability that an interval contains the success rate."""


@dataclass(frozen=True, slots=True)
class TaskDifficulty:
    """p̂ and its interval, from 0 to 1; p̂ is None without rollouts."""

    p: float | None
    low: float
    high: float


def difficulty(successes: float, rollouts: float, level: float = LEVEL) -> TaskDifficulty:
    """p̂ and Jeffreys' interval, from numbers of successes and rollouts, which discounts can make fractions.

    The interval is the middle `level` of Beta(successes + ½, failures + ½), extended to 0 without successes and to 1
    without failures (Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion", 2001). With weighted
    rollouts it is conservative. Raises `ValueError` for more successes than rollouts.
    """
    if not 0 <= successes <= rollouts + 1e-9:
        raise ValueError(f"{successes} successes in {rollouts} rollouts")
    if rollouts <= 0:
        return TaskDifficulty(None, 0.0, 1.0)
    failures, tail = max(0.0, rollouts - successes), (1 - level) / 2
    low = 0.0 if successes <= 0 else float(betaincinv(successes + 0.5, failures + 0.5, tail))
    high = 1.0 if failures <= 0 else float(betaincinv(successes + 0.5, failures + 0.5, 1 - tail))
    return TaskDifficulty(min(1.0, successes / rollouts), low, high)
