"""Weights of the tokens of anchored rows, by the name in `training.anchor_weight`.

An anchored row has tokens that were sampled under an interface (μ), and is trained on the plain prompts (π). A token's
weight is a function of ρ = π_old(y | plain) / μ(y | shown), where π_old is the policy before the round's first step. It
carries no gradient, and multiplies the advantage.
"""

from __future__ import annotations

from typing import Annotated, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from envs.registry import Registry


class AnchorWeight(Protocol):
    """The weight of each of M tokens, at least 0, from `log_rho_M` (nats)."""

    def __call__(self, log_rho_M: Tensor) -> Tensor: ...


class OneWeight:
    """1: each token of a guided success counts as if plain had said it (RLTF-SD, arXiv 2602.02482)."""

    def __call__(self, log_rho_M: Tensor) -> Tensor:
        return torch.ones_like(log_rho_M)


class ShapedWeight:
    """`clip(√ρ, low, 1)`: less for what plain would hardly say, and never nothing.

    LUFFY (arXiv 2504.14945) shapes off-policy tokens too, by ρ / (ρ + 0.1).
    """

    class Settings(BaseModel):
        """The setting of the shaped weight."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
        low: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
        """The smallest weight."""

    def __init__(self, settings: Settings | None = None) -> None:
        self._low = (settings or self.Settings()).low

    def __call__(self, log_rho_M: Tensor) -> Tensor:
        return torch.exp(log_rho_M.clamp(max=0.0) / 2).clamp(min=self._low)


class TruncatedWeight:
    """`min(ρ, 1)`: truncated importance sampling, unbiased up to the cap.

    The gradient nearly vanishes where the interface mattered: what it unlocked has a small ρ.
    """

    def __call__(self, log_rho_M: Tensor) -> Tensor:
        return torch.exp(log_rho_M.clamp(max=0.0))


ANCHOR_WEIGHTS: Registry[type[AnchorWeight]] = Registry(
    "training.anchor_weight",
    "seal_ray.anchor_weights",
    {
        "one": "seal_ray.grpo.anchor_weights:OneWeight",
        "shaped": "seal_ray.grpo.anchor_weights:ShapedWeight",
        "truncated": "seal_ray.grpo.anchor_weights:TruncatedWeight",
    },
)
"""The weights. A class takes its `Settings` from the training section and `training.anchor_weight_settings`."""
