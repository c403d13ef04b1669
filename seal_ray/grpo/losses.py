"""Losses over sampled tokens, by `training.loss`: GRPO, CISPO, and weighted likelihood."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Protocol, Self

import torch
from pydantic import BaseModel, ConfigDict, Field
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
    {name: f"seal_ray.grpo.losses:{name}" for name in ("none", "sqrt", "truncated")},
)


MAX_LOG_RATIO = 20.0
"""Upper cut of log-ratios: e^20 is clipped anyway, and must only stay finite."""
_MAX_LOG_REFERENCE = 10.0
"""From this `ref − cur` (nats) on, k3 to the reference is its tangent, so that value and gradient stay finite."""
_Positive = Annotated[float, Field(gt=0.0)]


@dataclass(frozen=True, slots=True)
class LossSums:
    """Sums over sampled tokens, added up over micro-batches and learners."""

    tokens: int = 0
    loss: float = 0.0
    clipped_low: int = 0
    """Tokens below `clip_low`, and of a negative advantage unless the loss is CISPO: they are less likely already."""
    clipped_high: int = 0
    """Tokens above `clip_high`, and of a positive advantage unless the loss is CISPO: they are more likely already."""
    clipped_dual: int = 0
    """Tokens clipped by `dual_clip`."""
    capped: int = 0
    """Tokens whose importance weight is `importance_cap`."""
    reference_kl: float = 0.0
    """KL of the policy from the reference (nats), by k3; 0 without a reference."""
    sampler_kl: float = 0.0
    """KL of the sampling distribution from the policy (nats), by k3."""
    ratio: float = 0.0
    ratio_min: float = math.inf
    ratio_max: float = -math.inf

    @property
    def clipped(self) -> int:
        return self.clipped_low + self.clipped_high + self.clipped_dual

    def __add__(self, other: Self) -> Self:
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        sums["ratio_min"] = min(self.ratio_min, other.ratio_min)
        sums["ratio_max"] = max(self.ratio_max, other.ratio_max)
        return replace(self, **sums)


@dataclass(frozen=True, slots=True, eq=False)
class TokenLosses:
    """The loss of each sampled token, with its gradient, and the sums, without one."""

    loss_M: Tensor
    sums: LossSums

    @property
    def loss_sum(self) -> Tensor:
        """The sum over the tokens: `global_mean` makes it a part of the batch's loss."""
        return self.loss_M.sum()


class Loss(Protocol):
    """The loss of M sampled tokens, whose current log-probs `logprobs_M` carry the gradient.

    All tensors have length M. Log-probs (nats): at sampling, under the reference policy (None if `training.kl` is 0),
    and the learner's before the round's first step (None unless `needs_proximal`, which costs a forward pass). A class
    takes its `Settings` from the training section. `token_losses` makes the result.
    """

    @property
    def needs_proximal(self) -> bool: ...

    def __call__(
        self,
        logprobs_M: Tensor,
        sampled_logprobs_M: Tensor,
        advantages_M: Tensor,
        *,
        reference_logprobs_M: Tensor | None = None,
        proximal_logprobs_M: Tensor | None = None,
    ) -> TokenLosses: ...


class _Settings(BaseModel):
    """A loss's constants; the training section has the same keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    kl: Annotated[float, Field(ge=0.0)] = 0.001
    """Coefficient of the KL to the reference policy."""


_Surrogate = tuple[Tensor, dict[str, Tensor]]


class _RatioLoss(ABC):
    """A loss with the ratio `r = exp(cur − old)` and a KL to the reference policy: `surrogate + kl · k3`."""

    Settings: type[_Settings] = _Settings

    def __init__(self, settings: _Settings) -> None:
        self.settings: Any = settings

    @property
    def needs_proximal(self) -> bool:
        return False

    def __call__(
        self,
        logprobs_M: Tensor,
        sampled_logprobs_M: Tensor,
        advantages_M: Tensor,
        *,
        reference_logprobs_M: Tensor | None = None,
        proximal_logprobs_M: Tensor | None = None,
    ) -> TokenLosses:
        """Raises `ValueError` for a `kl` without the reference's log-probs, or a cap without proximal ones."""
        kl = self.settings.kl
        if kl and reference_logprobs_M is None:
            raise ValueError("a KL coefficient and no reference log-probs")
        proximal_logprobs_M = proximal_logprobs_M if self.needs_proximal else sampled_logprobs_M
        if proximal_logprobs_M is None:
            raise ValueError("an importance cap and no proximal log-probs")
        old_M, proximal_M = (each.detach().to(logprobs_M) for each in (sampled_logprobs_M, proximal_logprobs_M))
        ratio_M = importance_ratio(logprobs_M, proximal_M)
        advantages_M = advantages_M.detach().to(logprobs_M)
        surrogate_M, masks = self._surrogate(logprobs_M, advantages_M, ratio_M, proximal_M - old_M)
        kl_M = kl_to_reference(logprobs_M, reference_logprobs_M)
        loss_M = surrogate_M + kl * kl_M if kl else surrogate_M
        return token_losses(
            loss_M, logprobs_M=logprobs_M, sampled_logprobs_M=old_M, ratio_M=ratio_M, reference_kl_M=kl_M, **masks
        )

    @abstractmethod
    def _surrogate(self, logprobs_M: Tensor, advantages_M: Tensor, ratio_M: Tensor, drift_M: Tensor) -> _Surrogate:
        """Returns the loss without its KL, and the masks for `token_losses`. `drift_M` is `proximal − old`."""


class GRPOLoss(_RatioLoss):
    """GRPO (arXiv 2402.03300) with a dual clip c. With the ratio `r = exp(cur − old)`, the loss of a token is

        surrogate = max(−A·r, −A·clip(r, 1 − clip_low, 1 + clip_high)), and at most −A·c if A < 0
        loss      = surrogate + kl · k3,  k3 = exp(ref − cur) − (ref − cur) − 1  (Schulman, "Approximating KL
                    Divergence", 2020), its tangent beyond 10 nats

    With an importance cap the ratio is to `proximal_logprobs_M`, and the surrogate is multiplied by
    `min(exp(proximal − old), cap)`, which carries no gradient.
    """

    class Settings(_Settings):
        """The constants of GRPO's loss."""

        clip_low: _Positive = 0.2
        clip_high: _Positive = 0.2
        dual_clip: Annotated[float, Field(gt=1.0)] | None = 10.0
        """Largest ratio that counts if the advantage is negative (arXiv 1912.09729); None for no bound."""
        importance_cap: _Positive | None = None
        """Cap of truncated importance sampling for the difference between engine and learner; None leaves it out."""

    @property
    def needs_proximal(self) -> bool:
        return self.settings.importance_cap is not None

    def _surrogate(self, logprobs_M: Tensor, advantages_M: Tensor, ratio_M: Tensor, drift_M: Tensor) -> _Surrogate:
        del logprobs_M
        settings = self.settings
        unclipped_M = -advantages_M * ratio_M
        clipped_M = -advantages_M * ratio_M.clamp(1 - settings.clip_low, 1 + settings.clip_high)
        is_clipped_M = clipped_M > unclipped_M
        masks = {
            "clipped_low_M": is_clipped_M & (advantages_M < 0),
            "clipped_high_M": is_clipped_M & (advantages_M > 0),
        }
        surrogate_M = torch.maximum(unclipped_M, clipped_M)
        if settings.dual_clip is not None:
            bound_M = -advantages_M * settings.dual_clip
            masks["clipped_dual_M"] = (advantages_M < 0) & (surrogate_M > bound_M)
            surrogate_M = torch.where(masks["clipped_dual_M"], bound_M, surrogate_M)
        if settings.importance_cap is not None:
            importance_M = torch.exp(drift_M.clamp(max=MAX_LOG_RATIO)).clamp(max=settings.importance_cap)
            masks["capped_M"] = importance_M == settings.importance_cap
            surrogate_M = importance_M * surrogate_M
        return surrogate_M, masks


class CISPOLoss(_RatioLoss):
    """CISPO (arXiv 2506.13585, section 3.1): REINFORCE with a clipped weight that carries no gradient.

        w    = stop_gradient(clip(r, 1 − clip_low, 1 + clip_high)),  r = exp(cur − old)
        loss = −w·A·cur + kl · k3

    The paper bounds the weight from above alone, as a `clip_low` of 1 or more does. `importance_cap` has no effect.
    """

    class Settings(_Settings):
        """The constants of CISPO's loss."""

        clip_low: _Positive = 0.2
        clip_high: _Positive = 0.2

    def _surrogate(self, logprobs_M: Tensor, advantages_M: Tensor, ratio_M: Tensor, drift_M: Tensor) -> _Surrogate:
        del drift_M
        low, high = 1 - self.settings.clip_low, 1 + self.settings.clip_high
        surrogate_M = -ratio_M.detach().clamp(low, high) * advantages_M * logprobs_M
        return surrogate_M, {"clipped_low_M": ratio_M < low, "clipped_high_M": ratio_M > high}


class RWRLoss(_RatioLoss):
    """`−w·cur + kl · k3`: weighted likelihood of sampled tokens, with weights as advantages (Peters and Schaal 2007).

    Without a ratio or a clip: on samples of the present policy, the gradient of the first term is a policy gradient
    without baseline.
    """

    def _surrogate(self, logprobs_M: Tensor, advantages_M: Tensor, ratio_M: Tensor, drift_M: Tensor) -> _Surrogate:
        del ratio_M, drift_M
        return -advantages_M * logprobs_M, {}


LOSSES: Registry[type[Loss]] = Registry(
    "training.loss",
    "seal_ray.losses",
    {name: f"seal_ray.grpo.losses:{name.upper()}Loss" for name in ("grpo", "cispo", "rwr")},
)


def token_losses(
    loss_M: Tensor,
    *,
    logprobs_M: Tensor,
    sampled_logprobs_M: Tensor,
    ratio_M: Tensor,
    reference_kl_M: Tensor | None = None,
    clipped_low_M: Tensor | None = None,
    clipped_high_M: Tensor | None = None,
    clipped_dual_M: Tensor | None = None,
    capped_M: Tensor | None = None,
) -> TokenLosses:
    """The losses of M tokens with their sums. The masks say which tokens are clipped; a missing one counts 0."""
    if not len(loss_M):
        return TokenLosses(loss_M, LossSums())
    with torch.no_grad():
        zero = torch.zeros_like(sampled_logprobs_M[0])
        masks = (clipped_low_M, clipped_high_M, clipped_dual_M, capped_M)
        sums = [
            loss_M.sum(),
            *(zero if mask_M is None else mask_M.sum() for mask_M in masks),
            zero if reference_kl_M is None else reference_kl_M.sum(),
            _k3((logprobs_M - sampled_logprobs_M).clamp(max=MAX_LOG_RATIO)).sum(),
            ratio_M.sum(),
            ratio_M.min(),
            ratio_M.max(),
        ]
        # One transfer from the device for all of them.
        loss, low, high, dual, capped, *rest = torch.stack([value.double() for value in sums]).tolist()
    return TokenLosses(loss_M, LossSums(len(loss_M), loss, int(low), int(high), int(dual), int(capped), *rest))


def importance_ratio(logprobs_M: Tensor, old_logprobs_M: Tensor) -> Tensor:
    """`exp(cur − old)`, kept finite."""
    return torch.exp((logprobs_M - old_logprobs_M).clamp(max=MAX_LOG_RATIO))


def kl_to_reference(logprobs_M: Tensor, reference_logprobs_M: Tensor | None) -> Tensor:
    """KL of the policy from the reference (nats) by k3, with its gradient; 0 without a reference.

    Beyond 10 nats k3 is continued by its tangent there: a policy that is far from its reference is still pulled back.
    """
    if reference_logprobs_M is None:
        return torch.zeros_like(logprobs_M)
    log_ratio_M = reference_logprobs_M.detach().to(logprobs_M.dtype) - logprobs_M
    # Unlike a clamp, relu has no gradient at 0, so that at the cut the gradient is k3's alone.
    excess_M = torch.relu(log_ratio_M - _MAX_LOG_REFERENCE)
    return _k3(log_ratio_M.clamp(max=_MAX_LOG_REFERENCE)) + math.expm1(_MAX_LOG_REFERENCE) * excess_M


def global_mean(loss_sum: Tensor, global_tokens: int) -> Tensor:
    """A micro-batch's part of the mean over the tokens of the whole batch, over all micro-batches and learners.

    If the learners' gradients are averaged, multiply by their number. Raises `ValueError` for a batch without tokens.
    """
    if global_tokens < 1:
        raise ValueError(f"a mean over {global_tokens} tokens")
    return loss_sum / global_tokens


def _k3(log_ratio_M: Tensor) -> Tensor:
    """`exp(x) − x − 1`: unbiased for KL(p ‖ q) with x = log q − log p at samples of p, and never negative."""
    return torch.expm1(log_ratio_M) - log_ratio_M
