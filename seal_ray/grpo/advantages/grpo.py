"""GRPO's scale: the standard deviation of the group (arXiv 2402.03300, section 4.1)."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field


class GRPOAdvantage:
    """Divides by `std + ε`; `std` is the population's, around the mean whatever the baseline is."""

    class Settings(BaseModel):
        """The setting of GRPO's advantage."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
        epsilon: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 1e-6
        """What is added to the deviation."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._epsilon = (settings or self.Settings()).epsilon

    def __call__(self, rewards_G: NDArray[np.float64]) -> float:
        return float(rewards_G.std() + self._epsilon)
