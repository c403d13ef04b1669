"""Advantages relative to the plain rollouts of a pair (RLTF-SD, arXiv 2602.02482), as `training.advantage`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def plain_baseline(rewards_G: NDArray[np.float64], arms_G: NDArray[np.int64]) -> NDArray[np.float64]:
    """`(r − mean of the plain members) / (std + ε)`; in a group without plain members the mean is the group's."""
    compared = rewards_G[arms_G == 0] if (arms_G == 0).any() else rewards_G
    return np.asarray((rewards_G - compared.mean()) / (rewards_G.std() + 1e-6), dtype=np.float64)
