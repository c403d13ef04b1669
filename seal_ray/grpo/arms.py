"""What the interfaces of a round were worth, compared on equal terms; and which of them stays. Numpy alone.

An arm is an interface that some groups of rollouts played; arm 0 is the plain one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

PLAIN = 0
ALPHA, BETA = 0.5, 2.0
"""GenEnv's α and β in its released configuration (arXiv 2512.19682)."""


@dataclass(frozen=True, slots=True)
class ArmGroup:
    """One group of rollouts: the arm it played, its task's category, and its success rate from 0 to 1."""

    arm: int
    category: str
    success: float


def gains(groups: Sequence[ArmGroup]) -> dict[int, float]:
    """Arm → its success above that of the plain arm, from -1 to 1.

    Arms play different tasks, and categories differ far more than arms: success is fitted as category + arm by least
    squares, so that arms are compared within categories. Empty where the plain arm did not play.
    """
    arms, categories = sorted({g.arm for g in groups}), sorted({g.category for g in groups})
    if PLAIN not in arms:
        return {}
    others = [arm for arm in arms if arm != PLAIN]
    rows_GX = np.array(
        [[g.category == name for name in categories] + [g.arm == arm for arm in others] for g in groups], dtype=float
    )
    solution_X, *_ = np.linalg.lstsq(rows_GX, np.array([g.success for g in groups]), rcond=None)
    found = dict(zip(others, solution_X[len(categories) :], strict=True))
    return {PLAIN: 0.0, **{arm: min(1.0, max(-1.0, float(value))) for arm, value in found.items()}}


def frontiers(groups: Sequence[ArmGroup]) -> dict[int, float]:
    """Arm → mean of 4p(1 − p) over its groups: 1 where tasks are solved half of the time, 0 where always or never."""
    return _means(groups, lambda p: 4 * p * (1 - p))


def alignments_with_difficulty(groups: Sequence[ArmGroup]) -> dict[int, float]:
    """Arm → mean of exp(−β·(p − α)²) over its groups (GenEnv's reward of the environment, arXiv 2512.19682)."""
    return _means(groups, lambda p: math.exp(-BETA * (p - ALPHA) ** 2))


def choose_incumbent(values: Mapping[int, float], incumbent: int, margin: float) -> int:
    """The arm that stays: the best, if it is worth more than `margin` above the incumbent, else the incumbent.

    An incumbent that has no value, because it did not play, stays.
    """
    if incumbent not in values:
        return incumbent
    best = max(values, key=lambda arm: (values[arm], arm == incumbent))
    return best if values[best] > values[incumbent] + margin else incumbent


def _means(groups: Sequence[ArmGroup], worth: Callable[[float], float]) -> dict[int, float]:
    arms = sorted({group.arm for group in groups})
    return {arm: fmean(worth(group.success) for group in groups if group.arm == arm) for arm in arms}
