"""Alpha: how near the success on a written task is to α, by GenEnv's formula (arXiv 2512.19682)."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from seal_ray.algorithm.tasks.rewards import WindowOutcomes


class AlphaTaskReward:
    """A task is worth exp(−β·(p̂ − α)²), p̂ its success over its rollouts in the window."""

    worst = 0.0
    needs_probe = False

    class Settings(BaseModel):
        """GenEnv's released configuration by default."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
        alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
        """The success that is sought."""
        beta: Annotated[float, Field(gt=0.0)] = 2.0
        """How sharply."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or self.Settings()

    def __call__(self, window: WindowOutcomes) -> list[float | None]:
        return [None if p is None else self.of(p) for p in (each.success for each in window.written)]

    def of(self, p: float) -> float:
        """The reward of a task with this success."""
        return math.exp(-self.settings.beta * (p - self.settings.alpha) ** 2)
