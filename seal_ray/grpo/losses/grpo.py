"""GRPO's loss: the clipped surrogate, its importance correction, and the KL to the reference (arXiv 2402.03300)."""

from __future__ import annotations

from typing import Annotated

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from seal_ray.grpo.losses.sums import MOST_LOG_RATIO, TokenLosses, held_by_kl, measured, ratio_of

_Positive = Annotated[float, Field(gt=0.0)]


class GRPOLoss:
    """GRPO with a dual clip c. With the ratio `r = exp(cur − old)` to the sampling log-probs, a sampled token's are:

        surrogate = max(−A·r, −A·clip(r, 1 − clip_low, 1 + clip_high)), and at most −A·c where A < 0
        loss      = surrogate + kl · k3,  k3 = exp(ref − cur) − (ref − cur) − 1  (Schulman, "Approximating KL
                    Divergence", 2020)

    With an importance cap the ratio is to `proximal_logprobs_M`, the learner's own log-probs at the update's start, and
    the surrogate is multiplied by `min(exp(proximal − old), cap)`, which carries no gradient. Without one the proximal
    log-probs are not read.
    """

    class Settings(BaseModel):
        """The loss's constants; the training section has the same keys."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
        clip_low: _Positive = 0.2
        """The ratio is clipped at 1 − `clip_low` from below."""
        clip_high: _Positive = 0.2
        """And at 1 + `clip_high` from above."""
        dual_clip: Annotated[float, Field(gt=1.0)] | None = 10.0
        """The most that a ratio counts where the advantage is negative (dual clip, arXiv 1912.09729); None for no
        bound."""
        kl: Annotated[float, Field(ge=0.0)] = 0.001
        """The weight of the KL to the reference policy."""
        importance_cap: _Positive | None = None
        """With a cap, the loss is corrected for the difference between the engine and the learner (truncated importance
        sampling); None takes the engine's log-probs for the learner's own."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def needs_proximal(self) -> bool:
        """Whether there is an importance cap."""
        return self.settings.importance_cap is not None

    def __call__(
        self,
        logprobs_M: Tensor,
        sampled_logprobs_M: Tensor,
        advantages_M: Tensor,
        *,
        reference_logprobs_M: Tensor | None = None,
        proximal_logprobs_M: Tensor | None = None,
    ) -> TokenLosses:
        """All are of one length, in nats; everything is computed in the dtype of `logprobs_M`.

        The reference's log-probs are needed unless `kl` is 0, the proximal ones where there is a cap: `ValueError`
        otherwise.
        """
        settings = self.settings
        if settings.importance_cap is not None and proximal_logprobs_M is None:
            raise ValueError("an importance cap and no proximal log-probs")
        dtype = logprobs_M.dtype
        old_M = sampled_logprobs_M.detach().to(dtype)
        advantages_M = advantages_M.detach().to(dtype)

        anchor_M, importance_M = old_M, torch.ones_like(old_M)
        if settings.importance_cap is not None and proximal_logprobs_M is not None:
            anchor_M = proximal_logprobs_M.detach().to(dtype)
            importance_M = torch.exp((anchor_M - old_M).clamp(max=MOST_LOG_RATIO)).clamp(max=settings.importance_cap)

        ratio_M = ratio_of(logprobs_M, anchor_M)
        plain_M = -advantages_M * ratio_M
        clipped_M = -advantages_M * ratio_M.clamp(1 - settings.clip_low, 1 + settings.clip_high)
        surrogate_M = torch.maximum(plain_M, clipped_M)
        dual_M = torch.zeros_like(surrogate_M, dtype=torch.bool)
        if settings.dual_clip is not None:
            bound_M = -advantages_M * settings.dual_clip
            dual_M = (advantages_M < 0) & (surrogate_M > bound_M)
            surrogate_M = torch.where(dual_M, bound_M, surrogate_M)
        loss_M = importance_M * surrogate_M

        loss_M, kl_M = held_by_kl(loss_M, settings.kl, logprobs_M, reference_logprobs_M)

        held_M = clipped_M > plain_M
        return measured(
            loss_M,
            logprobs_M=logprobs_M,
            sampled_logprobs_M=old_M,
            ratio_M=ratio_M,
            reference_kl_M=kl_M,
            clipped_low_M=held_M & (advantages_M < 0),
            clipped_high_M=held_M & (advantages_M > 0),
            clipped_dual_M=dual_M,
            capped_M=None if settings.importance_cap is None else importance_M == settings.importance_cap,
        )
