"""What an arm is worth to the curator, by `curator.reward`. The posterior compares arms by these numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from envs.registry import Registry

ALPHA, BETA = 0.5, 2.0
"""α and β of GenEnv's released configuration."""


@dataclass(frozen=True)
class CuratorReward:
    """What is compared between arms.

    By `success`: the success of an arm on each common task, or `of_group` of it: a function of the success and the
    number of rollouts of one group, None if it gives no value. By `gradients`: in each round, the cosine of the
    solver's policy gradient on the arm with that on the plain arm (`training/arm_gradients.py`). By `internalisation`:
    in each round, how far training closed the gap between plain and shown log-probs (`training/hint_stripped.py`).
    """

    by: Literal["success", "gradients", "internalisation"] = "success"
    of_group: Callable[[float, int], float | None] | None = None


def frontier_value(success: float, rollouts: int) -> float | None:
    """`4p(1 − p)`: 1 for tasks that are solved half of the time, 0 for always or never.

    p(1 − p) of n rollouts is too small by the factor 1 − 1/n on average, so that the value is divided by it, and can be
    above 1. One rollout gives no value.
    """
    return None if rollouts < 2 else 4 * success * (1 - success) * rollouts / (rollouts - 1)


def alpha_value(success: float, rollouts: int) -> float:
    """`exp(−β·(p − α)²)`, GenEnv's reward of the environment (arXiv 2512.19682)."""
    del rollouts
    return math.exp(-BETA * (success - ALPHA) ** 2)


gain = CuratorReward()
frontier = CuratorReward(of_group=frontier_value)
alpha = CuratorReward(of_group=alpha_value)
transfer = CuratorReward(by="gradients")
internalised = CuratorReward(by="internalisation")

CURATOR_REWARDS: Registry[CuratorReward] = Registry(
    "curator.reward",
    "seal_ray.curator_rewards",
    {
        name: f"seal_ray.proposing.curator_rewards:{name}"
        for name in ("gain", "frontier", "alpha", "transfer", "internalised")
    },
)
