"""The mean of the other members (RLOO, arXiv 2402.14740, section 2.2)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class LeaveOneOutBaseline:
    """`b_i = Σ_{j≠i} r_j / (G − 1)`: it does not depend on the member's own reward, so that no gradient is biased.

    RLOO as published is this baseline with `training.advantage: dr-grpo`, which divides by nothing.
    """

    def __call__(self, rewards_G: NDArray[np.float64], arms_G: NDArray[np.int64]) -> NDArray[np.float64]:
        del arms_G  # members are compared whatever they were shown
        return np.asarray((rewards_G.sum() - rewards_G) / (len(rewards_G) - 1), dtype=np.float64)
