"""The mean of the members on the plain interface (RLTF-SD, arXiv 2602.02482)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from seal_ray.grpo.arms import PLAIN


class PlainBaseline:
    """The same for each member: the mean reward of those that played the plain interface.

    So the advantage of a guided success is what the plain policy lacks. A group without plain members has the mean of
    the group.
    """

    def __call__(self, rewards_G: NDArray[np.float64], arms_G: NDArray[np.int64]) -> NDArray[np.float64]:
        compared = rewards_G[arms_G == PLAIN] if (arms_G == PLAIN).any() else rewards_G
        return np.full_like(rewards_G, compared.mean())
