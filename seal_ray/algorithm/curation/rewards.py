"""Rewards of a curator, by the name in `curator.reward`: the value of each arm of a window, at its end."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from envs.registry import Registry
from seal_ray.grpo.arms import PLAIN, ArmGroup, mean_of_each_arm


class CuratorReward(Protocol):
    """Arm → value, for the arms that played; larger is better. The best arm may become the incumbent.

    A proposal that is rejected gets `worst`, the least value that there is. With `needs_gradients` the solver's policy
    gradients are compared in each round, and `alignments` has arm → cosine with the plain arm's gradient, one for each
    round in which the arm played; else it is empty.
    """

    worst: float
    needs_gradients: bool

    def __call__(
        self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]
    ) -> Mapping[int, float]: ...


CURATOR_REWARDS: Registry[type[CuratorReward]] = Registry(
    "curator.reward",
    "seal_ray.curator_rewards",
    {
        "gain": "seal_ray.algorithm.curation.rewards:GainReward",
        "frontier": "seal_ray.algorithm.curation.rewards:FrontierReward",
        "alpha": "seal_ray.algorithm.curation.rewards:AlphaReward",
        "transfer": "seal_ray.algorithm.curation.rewards:TransferReward",
    },
)
"""The curator's rewards. A class takes its `Settings` from the curator section and `curator.reward_settings`."""


class GainReward:
    """Arm → its success above that of the plain arm, from -1 to 1; 0 for the plain arm.

    Arms play different tasks, and categories differ far more than arms: success is fitted as category + arm by least
    squares, so that arms are compared within categories. Empty where the plain arm did not play.
    """

    worst = -1.0
    needs_gradients = False

    def __call__(self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]) -> dict[int, float]:
        del alignments
        arms, categories = sorted({g.arm for g in groups}), sorted({g.category for g in groups})
        if PLAIN not in arms:
            return {}
        others = [arm for arm in arms if arm != PLAIN]
        rows_GX = np.array(
            [[g.category == name for name in categories] + [g.arm == arm for arm in others] for g in groups],
            dtype=float,
        )
        solution_X, *_ = np.linalg.lstsq(rows_GX, np.array([g.success for g in groups]), rcond=None)
        found = dict(zip(others, solution_X[len(categories) :], strict=True))
        return {PLAIN: 0.0, **{arm: min(1.0, max(-1.0, float(value))) for arm, value in found.items()}}


class FrontierReward:
    """Arm → mean of 4p(1 − p) over its groups: 1 where tasks are solved half of the time, 0 where always or never."""

    worst = 0.0
    needs_gradients = False

    def __call__(self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]) -> dict[int, float]:
        del alignments
        return mean_of_each_arm(groups, self.value)

    def value(self, success: float) -> float:
        """Of a group with this success rate."""
        return 4 * success * (1 - success)


class AlphaReward(FrontierReward):
    """Arm → mean of exp(−β·(p − α)²) over its groups: GenEnv's reward of the environment (arXiv 2512.19682)."""

    ALPHA, BETA = 0.5, 2.0
    """GenEnv's α and β in its released configuration."""

    def value(self, success: float) -> float:
        return math.exp(-self.BETA * (success - self.ALPHA) ** 2)


class TransferReward:
    """Arm → mean over its rounds of the cosine between the solver's policy gradients on it and on the plain arm.

    The plain arm's cosine with itself has no meaning here, so that its value is 0: a proposal must help plain
    rollouts.
    """

    worst = -1.0
    needs_gradients = True

    def __call__(self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]) -> dict[int, float]:
        del groups
        means = {arm: sum(values) / len(values) for arm, values in alignments.items()}
        return {PLAIN: 0.0, **means}
