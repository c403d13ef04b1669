"""Losses over sampled tokens, by the name in `training.loss`. `sums.py` has what they share."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from envs.registry import Registry
from seal_ray.grpo.losses.sums import TokenLosses


class Loss(Protocol):
    """The loss of M sampled tokens, whose current log-probs `logprobs_M` carry the gradient.

    All tensors are of one length, log-probs in nats. `sampled_logprobs_M` are those that the tokens were sampled with.
    `reference_logprobs_M` are those of the reference policy; None where `training.kl` is 0. `proximal_logprobs_M` are
    the learner's own before the round's first step, where the loss `needs_proximal`, which takes a forward pass more;
    else None. `measured` makes the result. An agent that learns has a loss of its own, made with its own settings.
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


LOSSES: Registry[type[Loss]] = Registry(
    "training.loss",
    "seal_ray.losses",
    {
        "grpo": "seal_ray.grpo.losses.grpo:GRPOLoss",
        "cispo": "seal_ray.grpo.losses.cispo:CISPOLoss",
        "rwr": "seal_ray.grpo.losses.rwr:RWRLoss",
    },
)
"""The losses. A class takes its `Settings` from the training section and `training.loss_settings`."""
