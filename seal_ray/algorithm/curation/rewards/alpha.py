"""Alpha: how near an arm's success is to one half, by GenEnv's formula (arXiv 2512.19682)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from seal_ray.grpo.arms import ArmGroup, mean_of_each_arm

ALPHA, BETA = 0.5, 2.0
"""GenEnv's α and β in its released configuration."""


class AlphaProposalReward:
    """Arm → mean of exp(−β·(p − α)²) over its groups: GenEnv's reward of the environment.

    It is GenEnv's formula as it stands: a group of few rollouts, as half of a pair, gets a little less.
    """

    worst = 0.0
    needs_gradients = False

    def __call__(self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]) -> dict[int, float]:
        del alignments
        return mean_of_each_arm(groups, lambda group: math.exp(-BETA * (group.success - ALPHA) ** 2))
