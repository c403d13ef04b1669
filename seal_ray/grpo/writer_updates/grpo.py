"""GRPO on specifications, as a curator learns: their rewards compared with each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from seal_ray.grpo.advantages import group_advantages
from seal_ray.grpo.advantages.proposals import STEP, centred_advantages


class GRPOUpdate:
    """The advantages of `group` are GRPO's, divided by the deviation; those of `centred` are undivided.

    Where they are centred a rejected specification lies `rejection_step` below the worst accepted one, so that
    rejections do not set the scale; with `group` it has the least reward that there is.
    """

    loss = "grpo"

    class Settings(BaseModel):
        """As the curator's settings of these names."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
        advantage: Literal["group", "centred"] = "centred"
        """What the advantages are."""
        rejection_step: Annotated[float, Field(gt=0.0)] = STEP
        """How far a rejected specification lies below the worst accepted one, where they are centred."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or self.Settings()

    def __call__(self, rewards_G: Sequence[float], rejected_G: Sequence[bool]) -> NDArray[np.float64] | None:
        if len(rewards_G) < 2:
            return None
        if self.settings.advantage == "centred":
            return centred_advantages(rewards_G, rejected_G, step=self.settings.rejection_step)
        return group_advantages(rewards_G)
