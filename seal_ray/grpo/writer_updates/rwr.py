"""Reward-weighted regression on specifications (Peters and Schaal 2007), as GenEnv has it (arXiv 2512.19682)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from seal_ray.grpo.rounding import all_equal


class RWRUpdate:
    """Specification i has the weight exp(r_i / reward_temperature), divided by the mean over the group.

    The writer is regressed on its own specifications, the more so the more they are worth; a KL to its first policy
    holds it (`seal_ray/grpo/losses/rwr.py`). A rejected one has the weight 0: what cannot be composed is not imitated.
    """

    loss = "rwr"

    class Settings(BaseModel):
        """The setting of the regression."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
        reward_temperature: Annotated[float, Field(gt=0.0)] = 1.0
        """The smaller, the more the best specifications count; in units of the reward. 1 is GenEnv's (λ = 1.0).
        `writer.temperature` is that of the sampling."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._temperature = (settings or self.Settings()).reward_temperature

    def __call__(self, rewards_G: Sequence[float], rejected_G: Sequence[bool]) -> NDArray[np.float64] | None:
        """None where all weights are the same: the expected gradient of such a regression is 0."""
        rewards, rejected = np.asarray(rewards_G, dtype=np.float64), np.asarray(rejected_G, dtype=bool)
        if not np.isfinite(rewards[~rejected]).all():
            raise ValueError(f"the rewards of specifications must be finite numbers, not {rewards_G!r}")
        if rejected.all():
            return None
        weights = np.zeros_like(rewards)
        best = rewards[~rejected].max()  # it cancels, and keeps the exponential finite
        weights[~rejected] = np.exp((rewards[~rejected] - best) / self._temperature)
        weights /= weights.mean()
        return None if all_equal(weights) else weights
