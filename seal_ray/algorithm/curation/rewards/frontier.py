"""Frontier: how near an arm's success is to one half, by the variance of a group's success."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seal_ray.grpo.arms import ArmGroup, mean_of_each_arm


class FrontierReward:
    """Arm → mean of 4p(1 − p) over its groups: 1 where tasks are solved half of the time, 0 where always or never.

    p is the success of n rollouts, of which p(1 − p) is too small by the factor 1 − 1/n in the mean, and groups differ
    in n: half of a pair has half as many. So a group's value is divided by that factor, and can be above 1. A group of
    one rollout tells nothing, and is left out.
    """

    worst = 0.0
    needs_gradients = False

    def __call__(self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]) -> dict[int, float]:
        del alignments
        return mean_of_each_arm([group for group in groups if group.rollouts > 1], _of)


def _of(group: ArmGroup) -> float:
    p, n = group.success, group.rollouts
    return 4 * p * (1 - p) * n / (n - 1)
