"""CISPO's loss: the importance weight is clipped, and no token loses its gradient (MiniMax-M1, arXiv 2506.13585)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from seal_ray.grpo.losses.sums import TokenLosses, held_by_kl, measured, ratio_of

_Positive = Annotated[float, Field(gt=0.0)]


class CISPOLoss:
    """REINFORCE with a clipped weight that carries no gradient (section 3.1), with a KL beside it:

        w    = stop_gradient(clip(r, 1 − clip_low, 1 + clip_high)),  r = exp(cur − old)
        loss = −w·A·cur + kl · k3

    The paper bounds the weight from above alone: `clip_low` of 1 or more does so. `dual_clip` and `importance_cap` of
    the training section have no effect.
    """

    needs_proximal = False

    class Settings(BaseModel):
        """The loss's constants; the training section has the same keys."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
        clip_low: _Positive = 0.2
        """The weight is at least 1 − `clip_low`."""
        clip_high: _Positive = 0.2
        """And at most 1 + `clip_high`."""
        kl: Annotated[float, Field(ge=0.0)] = 0.001
        """The weight of the KL to the reference policy."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def __call__(
        self,
        logprobs_M: Tensor,
        sampled_logprobs_M: Tensor,
        advantages_M: Tensor,
        *,
        reference_logprobs_M: Tensor | None = None,
        proximal_logprobs_M: Tensor | None = None,
    ) -> TokenLosses:
        """All are of one length, in nats. Raises `ValueError` without the reference's log-probs, unless `kl` is 0."""
        del proximal_logprobs_M
        settings = self.settings
        old_M = sampled_logprobs_M.detach().to(logprobs_M.dtype)
        ratio_M = ratio_of(logprobs_M, old_M)
        low, high = 1 - settings.clip_low, 1 + settings.clip_high
        weight_M = ratio_M.detach().clamp(low, high)
        loss_M = -weight_M * advantages_M.detach().to(logprobs_M.dtype) * logprobs_M
        loss_M, kl_M = held_by_kl(loss_M, settings.kl, logprobs_M, reference_logprobs_M)
        return measured(
            loss_M,
            logprobs_M=logprobs_M,
            sampled_logprobs_M=old_M,
            ratio_M=ratio_M,
            reference_kl_M=kl_M,
            clipped_low_M=ratio_M < low,
            clipped_high_M=ratio_M > high,
        )
