"""GRPO's loss over sampled tokens: the clipped surrogate, its importance correction, and the KL to the reference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from envs.errors import UserError

_MOST_LOG_RATIO = 20.0
"""Where log-ratios are cut off from above. e^20 is clipped anyway; it only has to stay finite."""
_MOST_LOG_REFERENCE = 10.0
"""Where `ref − cur` is cut off from above in k3, so that one token which the policy has all but unlearnt cannot fill
the gradient with its e^(ref − cur). Nothing is cut below: there k3 is linear, and holds a policy that has drifted."""


@dataclass(frozen=True, slots=True)
class LossSettings:
    """The loss's constants. Raises `UserError` for values out of range."""

    clip_low: float = 0.2
    """The ratio is clipped at 1 − `clip_low` from below."""
    clip_high: float = 0.2
    """And at 1 + `clip_high` from above."""
    dual_clip: float | None = 10.0
    """The most that a ratio counts where the advantage is negative (dual clip, arXiv 1912.09729); None for no bound."""
    kl_coefficient: float = 0.001
    """The weight of the KL to the reference policy."""
    importance_cap: float | None = None
    """With a cap, the loss is corrected for the difference between the engine and the learner (truncated importance
    sampling); None takes the engine's log-probs for the learner's own."""

    def __post_init__(self) -> None:
        if not 0 < self.clip_low < math.inf:
            raise UserError(f"clip_low: {self.clip_low!r} is not allowed; it is a finite number above 0.")
        if not 0 < self.clip_high < math.inf:
            raise UserError(f"clip_high: {self.clip_high!r} is not allowed; it is a finite number above 0.")
        if self.dual_clip is not None and not 1 < self.dual_clip < math.inf:
            raise UserError(f"dual_clip: {self.dual_clip!r} is not allowed; it lies above 1, or is none.")
        if not 0 <= self.kl_coefficient < math.inf:
            raise UserError(
                f"kl_coefficient: {self.kl_coefficient!r} is not allowed; it is a finite number, 0 or more."
            )
        if self.importance_cap is not None and not 0 < self.importance_cap < math.inf:
            raise UserError(f"importance_cap: {self.importance_cap!r} is not allowed; it lies above 0, or is none.")


@dataclass(frozen=True, slots=True)
class LossSums:
    """Sums over sampled tokens, to be added up over micro-batches and learners and divided by `tokens`.

    The empty one is the neutral element of `+`.
    """

    tokens: int = 0
    loss: float = 0.0
    clipped_low: int = 0
    """Tokens held by `clip_low`: a negative advantage whose token has become less likely already."""
    clipped_high: int = 0
    """Tokens held by `clip_high`: a positive advantage whose token has become more likely already."""
    clipped_dual: int = 0
    """Tokens held by `dual_clip`."""
    capped: int = 0
    """Tokens whose importance weight is `importance_cap`."""
    reference_kl: float = 0.0
    """KL of the policy from the reference (nats), by k3; 0 without a reference."""
    sampler_kl: float = 0.0
    """KL of the sampling distribution from the policy (nats), by k3."""
    ratio: float = 0.0
    """The ratio that is clipped."""
    ratio_min: float = math.inf
    ratio_max: float = -math.inf

    def __add__(self, other: LossSums) -> LossSums:
        return LossSums(
            self.tokens + other.tokens,
            self.loss + other.loss,
            self.clipped_low + other.clipped_low,
            self.clipped_high + other.clipped_high,
            self.clipped_dual + other.clipped_dual,
            self.capped + other.capped,
            self.reference_kl + other.reference_kl,
            self.sampler_kl + other.sampler_kl,
            self.ratio + other.ratio,
            min(self.ratio_min, other.ratio_min),
            max(self.ratio_max, other.ratio_max),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TokenLosses:
    """The loss of each sampled token, with its gradient, and what was measured beside it, without one."""

    loss_M: Tensor
    sums: LossSums

    @property
    def loss_sum(self) -> Tensor:
        """The sum over the tokens: `global_mean` makes it a part of the batch's loss."""
        return self.loss_M.sum()


def token_losses(
    logprobs_M: Tensor,
    old_logprobs_M: Tensor,
    advantages_M: Tensor,
    settings: LossSettings,
    *,
    reference_logprobs_M: Tensor | None = None,
    proximal_logprobs_M: Tensor | None = None,
) -> TokenLosses:
    """The loss of M sampled tokens, whose current log-probs `logprobs_M` carry the gradient (GRPO, arXiv 2402.03300).

    With the ratio `r = exp(cur − old)` to the sampling log-probs, and c the dual clip:

        surrogate = max(−A·r, −A·clip(r, 1 − clip_low, 1 + clip_high)), and at most −A·c where A < 0
        loss      = surrogate + kl_coefficient · k3,  k3 = exp(ref − cur) − (ref − cur) − 1  (Schulman, "Approximating
                    KL Divergence", 2020)

    With an importance cap the ratio is to `proximal_logprobs_M`, the learner's own log-probs at the update's start, and
    the surrogate is multiplied by `min(exp(proximal − old), cap)`, which carries no gradient. Without one the proximal
    log-probs are not read.

    All are of one length, in nats; everything is computed in the dtype of `logprobs_M`. The reference's log-probs are
    needed unless the coefficient is 0, the proximal ones where there is a cap: `ValueError` otherwise.
    """
    if settings.kl_coefficient and reference_logprobs_M is None:
        raise ValueError("a KL coefficient and no reference log-probs")
    if settings.importance_cap is not None and proximal_logprobs_M is None:
        raise ValueError("an importance cap and no proximal log-probs")
    dtype = logprobs_M.dtype
    old_M = old_logprobs_M.detach().to(dtype)
    advantages_M = advantages_M.detach().to(dtype)

    anchor_M, importance_M = old_M, torch.ones_like(old_M)
    if settings.importance_cap is not None and proximal_logprobs_M is not None:
        anchor_M = proximal_logprobs_M.detach().to(dtype)
        importance_M = torch.exp((anchor_M - old_M).clamp(max=_MOST_LOG_RATIO)).clamp(max=settings.importance_cap)

    ratio_M = torch.exp((logprobs_M - anchor_M).clamp(max=_MOST_LOG_RATIO))
    plain_M = -advantages_M * ratio_M
    clipped_M = -advantages_M * ratio_M.clamp(1 - settings.clip_low, 1 + settings.clip_high)
    surrogate_M = torch.maximum(plain_M, clipped_M)
    dual_M = torch.zeros_like(surrogate_M, dtype=torch.bool)
    if settings.dual_clip is not None:
        bound_M = -advantages_M * settings.dual_clip
        dual_M = (advantages_M < 0) & (surrogate_M > bound_M)
        surrogate_M = torch.where(dual_M, bound_M, surrogate_M)
    loss_M = importance_M * surrogate_M

    kl_M = torch.zeros_like(loss_M)
    if reference_logprobs_M is not None:
        kl_M = _k3((reference_logprobs_M.detach().to(dtype) - logprobs_M).clamp(max=_MOST_LOG_REFERENCE))
    if settings.kl_coefficient:
        loss_M = loss_M + settings.kl_coefficient * kl_M

    if not len(loss_M):
        return TokenLosses(loss_M, LossSums())
    with torch.no_grad():
        held_M = clipped_M > plain_M
        sums = [
            loss_M.sum(),
            (held_M & (advantages_M < 0)).sum(),
            (held_M & (advantages_M > 0)).sum(),
            dual_M.sum(),
            (importance_M == settings.importance_cap).sum() if settings.importance_cap else torch.zeros_like(old_M[0]),
            kl_M.sum(),
            _k3((logprobs_M - old_M).clamp(max=_MOST_LOG_RATIO)).sum(),
            ratio_M.sum(),
            ratio_M.min(),
            ratio_M.max(),
        ]
        # One transfer from the device for all of them.
        loss, low, high, dual, capped, *rest = torch.stack([each.double() for each in sums]).tolist()
    return TokenLosses(loss_M, LossSums(len(loss_M), loss, int(low), int(high), int(dual), int(capped), *rest))


def global_mean(loss_sum: Tensor, global_tokens: int) -> Tensor:
    """A micro-batch's part of the token-mean over the whole batch, in all micro-batches of all learners.

    Parts are added up, over learners too: where the learners' gradients are averaged, multiply by their number. Raises
    `ValueError` where the batch has no tokens.
    """
    if global_tokens < 1:
        raise ValueError(f"a mean over {global_tokens} tokens")
    return loss_sum / global_tokens


def _k3(log_ratio_M: Tensor) -> Tensor:
    """`exp(x) − x − 1`: unbiased for KL(p ‖ q) with x = log q − log p at samples of p, and never negative."""
    return torch.expm1(log_ratio_M) - log_ratio_M
