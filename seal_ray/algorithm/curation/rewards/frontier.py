"""Frontier: how near an arm's success is to one half, by the variance of a group's success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seal_ray.grpo.arms import ArmGroup, mean_of_each_arm


class FrontierReward:
    """Arm → mean of 4p(1 − p) over its groups: 1 where tasks are solved half of the time, 0 where always or never."""

    worst = 0.0
    needs_gradients = False

    def __call__(self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]) -> dict[int, float]:
        del alignments
        return mean_of_each_arm(groups, lambda p: 4 * p * (1 - p))
