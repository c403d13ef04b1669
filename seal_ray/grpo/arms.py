"""Arms: the interfaces that are compared in a window, and which of them stays.

An arm is an interface that some groups of rollouts played; arm 0 is the plain one. Their values are in
`seal_ray/algorithm/curation/rewards/`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

PLAIN = 0


@dataclass(frozen=True, slots=True)
class ArmGroup:
    """One group of rollouts: the arm it played, its task's category, and its success rate from 0 to 1.

    `task` is the task's id, and `rollouts` the number of dialogues that were played.
    """

    arm: int
    category: str
    success: float
    task: str = ""
    rollouts: int = 1


def choose_incumbent(values: Mapping[int, float], incumbent: int, margin: float) -> int:
    """The arm that stays: the best, if its value is more than `margin` above the incumbent's, else the incumbent.

    An incumbent that has no value, because it did not play, counts as much as the plain arm, or 0 where that has none
    either: what is not known must not bar what is.
    """
    bar = values.get(incumbent, values.get(PLAIN, 0.0))
    best = max(values, key=lambda arm: (values[arm], arm == incumbent), default=incumbent)
    return best if values.get(best, bar) > bar + margin else incumbent


def mean_of_each_arm(groups: Sequence[ArmGroup], value: Callable[[ArmGroup], float]) -> dict[int, float]:
    """Arm → mean of `value(group)` over its groups."""
    arms = sorted({group.arm for group in groups})
    return {arm: fmean(value(group) for group in groups if group.arm == arm) for arm in arms}
