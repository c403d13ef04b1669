"""The mean of the group (GRPO, arXiv 2402.03300, section 4.1)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class MeanBaseline:
    """The same for each member: the mean of all rewards of the group."""

    def __call__(self, rewards_G: NDArray[np.float64], arms_G: NDArray[np.int64]) -> NDArray[np.float64]:
        del arms_G  # members are compared whatever they were shown
        return np.full_like(rewards_G, rewards_G.mean())
