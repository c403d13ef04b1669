"""Weights of the tokens of hint-stripped rows, by `training.off_policy_weight`.

Such tokens were sampled under an interface (μ) and are trained on plain prompts (π). The weight of a token multiplies
its advantage, carries no gradient, and is a function of ρ = π_old(y | plain) / μ(y | shown).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from envs.registry import Registry

OffPolicyWeight = Callable[[Tensor], Tensor]
"""The weight of each of M tokens, at least 0, from `log_rho_M` (nats)."""
_LEAST = 0.2
"""Smallest weight of `sqrt`."""


def none(log_rho_M: Tensor) -> Tensor:
    """1: filtered behaviour cloning of guided successes (RLTF-SD, arXiv 2602.02482), a biased objective."""
    return torch.ones_like(log_rho_M)


def sqrt(log_rho_M: Tensor) -> Tensor:
    """`clip(√ρ, 0.2, 1)`. LUFFY (arXiv 2504.14945) shapes off-policy tokens too, by ρ / (ρ + 0.1)."""
    return torch.exp(log_rho_M.clamp(max=0.0) / 2).clamp(min=_LEAST)


def truncated(log_rho_M: Tensor) -> Tensor:
    """`min(ρ, 1)`: truncated importance sampling. The gradient nearly vanishes if the interface mattered."""
    return torch.exp(log_rho_M.clamp(max=0.0))


OFF_POLICY_WEIGHTS: Registry[OffPolicyWeight] = Registry(
    "training.off_policy_weight",
    "seal_ray.off_policy_weights",
    {name: f"seal_ray.grpo.off_policy:{name}" for name in ("none", "sqrt", "truncated")},
)
