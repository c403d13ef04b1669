"""Rewards of the solver, by the name in `environment.reward`: what training learns from. Evaluation counts success."""

from __future__ import annotations

from typing import Protocol

from envs.registry import Registry
from policies.trajectory import Trajectory


class Reward(Protocol):
    """The reward of a finished dialogue: a finite number.

    A trajectory always gets the same reward. It is computed several times: for the advantages, for the metrics, and for
    the dynamic weights of the diagnosis.
    """

    def __call__(self, trajectory: Trajectory) -> float: ...


REWARDS: Registry[type[Reward]] = Registry(
    "environment.reward",
    "seal_ray.rewards",
    {
        "success": "seal_ray.grpo.rewards.success:SuccessReward",
        "progress": "seal_ray.grpo.rewards.progress:TurnShareReward",
    },
)
"""The rewards. A class takes its `Settings` from the environment section and `environment.reward_settings`."""
