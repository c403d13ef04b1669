"""Baselines, by the name in `training.baseline`: what is subtracted from each reward of a group."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from envs.registry import Registry


class Baseline(Protocol):
    """The baseline of each of a group's G rewards.

    `arms_G` is the arm that each member played; 0 is the plain interface, and a pair has that and another. Groups in
    which all rewards are equal are dropped before, so that G is 2 or more.
    """

    def __call__(self, rewards_G: NDArray[np.float64], arms_G: NDArray[np.int64]) -> NDArray[np.float64]: ...


BASELINES: Registry[type[Baseline]] = Registry(
    "training.baseline",
    "seal_ray.baselines",
    {
        "mean": "seal_ray.grpo.baselines.mean:MeanBaseline",
        "pooled": "seal_ray.grpo.baselines.mean:MeanBaseline",
        "plain": "seal_ray.grpo.baselines.plain:PlainBaseline",
        "leave-one-out": "seal_ray.grpo.baselines.leave_one_out:LeaveOneOutBaseline",
    },
)
"""The baselines. A class takes its `Settings` from the training section and `training.baseline_settings`."""
