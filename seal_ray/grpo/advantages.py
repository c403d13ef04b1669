"""Group-relative advantages: a rollout's reward against those of the same task under the same interface."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def group_advantages(rewards_G: Sequence[float], *, epsilon: float = 1e-6) -> NDArray[np.float64] | None:
    """The advantages `A_G = (r − mean) / (std + ε)` of one group of G rollouts (GRPO, arXiv 2402.03300, section 4.1).

    `std` is the population's. Returns None where all rewards are the same: such a group teaches nothing and is not sent
    to the learner. Raises `ValueError` where a reward is not finite, or there is none.
    """
    rewards = np.asarray(rewards_G, dtype=np.float64)
    if rewards.ndim != 1 or rewards.size == 0 or not np.isfinite(rewards).all():
        raise ValueError(f"a group's rewards must be a row of finite numbers, not {rewards_G!r}")
    # Not `std == 0`: the mean of equal rewards is rounded, and ε would not hold back what is left of them.
    if rewards.max() == rewards.min():
        return None
    return np.asarray((rewards - rewards.mean()) / (rewards.std() + epsilon), dtype=np.float64)
