"""Values of arms by `curator.reward`, which the posterior compares."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from envs.registry import Registry

ALPHA, BETA = 0.5, 2.0
"""α and β of GenEnv's released configuration."""


@dataclass(frozen=True)
class CuratorReward:
    """The quantity that is compared between arms on common tasks.

    It is their success, or the mean `of_group(success, rollouts)` of their groups, in which None is no value.
    """

    of_group: Callable[[float, int], float | None] | None = None


def frontier_value(success: float, rollouts: int) -> float | None:
    """`4p(1 − p) / (1 − 1/n)` for n rollouts, an unbiased estimate of `4p(1 − p)`; None for one rollout."""
    return None if rollouts < 2 else 4 * success * (1 - success) * rollouts / (rollouts - 1)


def alpha_value(success: float, rollouts: int = 0) -> float:
    """`exp(−β·(p − α)²)`, GenEnv's reward of the environment (arXiv 2512.19682)."""
    del rollouts
    return math.exp(-BETA * (success - ALPHA) ** 2)


gain = CuratorReward()
frontier = CuratorReward(of_group=frontier_value)
alpha = CuratorReward(of_group=alpha_value)

CURATOR_REWARDS: Registry[CuratorReward] = Registry(
    "curator.reward",
    "seal_ray.curator_rewards",
    {name: f"seal_ray.proposing.curator_rewards:{name}" for name in ("gain", "frontier", "alpha")},
)
