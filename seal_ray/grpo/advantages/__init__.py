"""Advantages: a rollout's reward against those of the same task under the same interface.

An advantage is (reward − baseline) / scale. `training.baseline` names what is subtracted (`seal_ray/grpo/baselines/`),
`training.advantage` what it is divided by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from envs.registry import Registry
from seal_ray.grpo.advantages.grpo import GRPOAdvantage
from seal_ray.grpo.baselines import Baseline
from seal_ray.grpo.baselines.mean import MeanBaseline
from seal_ray.grpo.rounding import all_equal


class Advantage(Protocol):
    """What a group's rewards are divided by once the baseline is subtracted: a number above 0."""

    def __call__(self, rewards_G: NDArray[np.float64]) -> float: ...


ADVANTAGES: Registry[type[Advantage]] = Registry(
    "training.advantage",
    "seal_ray.advantages",
    {
        "grpo": "seal_ray.grpo.advantages.grpo:GRPOAdvantage",
        "dr-grpo": "seal_ray.grpo.advantages.dr_grpo:DrGRPOAdvantage",
    },
)
"""The advantages. A class takes its `Settings` from the training section and `training.advantage_settings`."""


@dataclass(frozen=True)
class GroupAdvantages:
    """The advantages `A_G = (r − baseline) / scale` of a group of G rollouts, by default GRPO's."""

    baseline: Baseline = field(default_factory=MeanBaseline)
    advantage: Advantage = field(default_factory=GRPOAdvantage)

    def __call__(self, rewards_G: Sequence[float], arms_G: Sequence[int] | None = None) -> NDArray[np.float64] | None:
        """`arms_G` is the arm that each member played, by default the plain one.

        Returns None where all rewards are the same but for rounding: such a group teaches nothing and is not sent to
        the learner. Raises `ValueError` where a reward or an advantage is not finite, or there is none.
        """
        rewards = np.asarray(rewards_G, dtype=np.float64)
        if rewards.ndim != 1 or rewards.size == 0 or not np.isfinite(rewards).all():
            raise ValueError(f"a group's rewards must be a row of finite numbers, not {rewards_G!r}")
        # Not `std == 0`: the mean of equal rewards is rounded, and ε would not hold back what is left of them.
        if all_equal(rewards):
            return None
        arms = np.zeros(len(rewards), dtype=np.int64) if arms_G is None else np.asarray(arms_G, dtype=np.int64)
        found = np.asarray((rewards - self.baseline(rewards, arms)) / self.advantage(rewards), dtype=np.float64)
        if found.shape != rewards.shape or not np.isfinite(found).all():
            raise ValueError(f"a group's advantages must be as many finite numbers as its rewards, not {found!r}")
        return found


group_advantages = GroupAdvantages()
"""GRPO's advantages (arXiv 2402.03300, section 4.1): `(r − mean) / (std + ε)`."""
