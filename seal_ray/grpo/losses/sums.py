"""What losses share: the sums that are counted, the KL estimator, and a micro-batch's part of the batch's mean."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

MOST_LOG_RATIO = 20.0
"""Where log-ratios are cut off from above. e^20 is clipped anyway; it only has to stay finite."""
_MOST_LOG_REFERENCE = 10.0
"""Where `ref − cur` is cut off from above in k3, so that one token which the policy has all but unlearnt cannot fill
the gradient with its e^(ref − cur). Nothing is cut below: there k3 is linear, and holds a policy that has drifted."""


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

    @property
    def clipped(self) -> int:
        """Tokens that a clip holds."""
        return self.clipped_low + self.clipped_high + self.clipped_dual

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


def measured(
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
    """The losses of M tokens with what `LossSums` counts of them.

    `loss_M` carries the gradient. `ratio_M` is the ratio that the loss clips, or would. The masks say which tokens are
    held; what is left out counts 0.
    """
    if not len(loss_M):
        return TokenLosses(loss_M, LossSums())
    with torch.no_grad():
        nothing = torch.zeros_like(sampled_logprobs_M[0])
        held = (clipped_low_M, clipped_high_M, clipped_dual_M, capped_M)
        sums = [
            loss_M.sum(),
            *(nothing if mask_M is None else mask_M.sum() for mask_M in held),
            nothing if reference_kl_M is None else reference_kl_M.sum(),
            _k3((logprobs_M - sampled_logprobs_M).clamp(max=MOST_LOG_RATIO)).sum(),
            ratio_M.sum(),
            ratio_M.min(),
            ratio_M.max(),
        ]
        # One transfer from the device for all of them.
        loss, low, high, dual, capped, *rest = torch.stack([each.double() for each in sums]).tolist()
    return TokenLosses(loss_M, LossSums(len(loss_M), loss, int(low), int(high), int(dual), int(capped), *rest))


def ratio_of(logprobs_M: Tensor, anchor_logprobs_M: Tensor) -> Tensor:
    """`exp(cur − anchor)`, kept finite."""
    return torch.exp((logprobs_M - anchor_logprobs_M).clamp(max=MOST_LOG_RATIO))


def kl_to_reference(logprobs_M: Tensor, reference_logprobs_M: Tensor | None) -> Tensor:
    """The KL of the policy from the reference in nats, with its gradient; 0 without a reference.

    It is estimated by `k3 = exp(ref − cur) − (ref − cur) − 1` (Schulman, "Approximating KL Divergence", 2020).
    """
    if reference_logprobs_M is None:
        return torch.zeros_like(logprobs_M)
    reference_M = reference_logprobs_M.detach().to(logprobs_M.dtype)
    return _k3((reference_M - logprobs_M).clamp(max=_MOST_LOG_REFERENCE))


def held_by_kl(
    loss_M: Tensor, coefficient: float, logprobs_M: Tensor, reference_logprobs_M: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`loss + coefficient · k3`, and k3 alone. Raises `ValueError` for a coefficient and no reference."""
    if coefficient and reference_logprobs_M is None:
        raise ValueError("a KL coefficient and no reference log-probs")
    kl_M = kl_to_reference(logprobs_M, reference_logprobs_M)
    return (loss_M + coefficient * kl_M if coefficient else loss_M), kl_M


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
