"""The loss of reward-weighted regression: weighted likelihood, held by a KL (Peters and Schaal 2007)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from seal_ray.grpo.losses.sums import TokenLosses, held_by_kl, measured, ratio_of


class RWRLoss:
    """`−w·cur + kl · k3`: regression on sampled tokens with weights in the place of advantages, and a KL beside it.

    Weights are at least 0 where `writer.update` is rwr. There is no ratio and no clip: of what is sampled with the
    present policy, the gradient of the first term is that of a policy gradient without baseline.
    """

    needs_proximal = False

    class Settings(BaseModel):
        """The loss's constant; the training section has the same key."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
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
        old_M = sampled_logprobs_M.detach().to(logprobs_M.dtype)
        loss_M = -advantages_M.detach().to(logprobs_M.dtype) * logprobs_M
        loss_M, kl_M = held_by_kl(loss_M, self.settings.kl, logprobs_M, reference_logprobs_M)
        return measured(
            loss_M,
            logprobs_M=logprobs_M,
            sampled_logprobs_M=old_M,
            ratio_M=ratio_of(logprobs_M, old_M),
            reference_kl_M=kl_M,
        )
