"""The whole loss again, as plainly as can be: one sequence and one token at a time, nothing packed, in float64."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seal_ray.grpo.losses import GRPOLoss
from seal_ray.grpo.packing import Row


def scores(model: nn.Module, row: Row, temperature: float) -> list[Tensor]:
    """The log-prob of each sampled token of one row, from the full logits of a forward pass over that row alone."""
    logits_TV = model(input_ids=torch.from_numpy(row.token_ids_T)[None], use_cache=False).logits[0].double()
    found = []
    for place in range(1, len(row)):
        if row.mask_T[place]:
            scaled_V = logits_TV[place - 1] / temperature
            found.append(scaled_V[int(row.token_ids_T[place])] - scaled_V.exp().sum().log())
    return found


def batch_loss(
    model: nn.Module,
    rows: Sequence[Row],
    settings: GRPOLoss.Settings,
    temperature: float,
    reference: Sequence[Sequence[float]],
    proximal: Sequence[Sequence[float]],
    off_policy_weight: str = "none",
) -> Tensor:
    """The batch's loss: the mean over all sampled tokens of all rows. Log-probs go by row and sampled token."""
    losses = []
    for row, of_reference, of_proximal in zip(rows, reference, proximal, strict=True):
        old = [float(value) for value, sampled in zip(row.sampled_logprobs_T, row.mask_T, strict=True) if sampled]
        for current, sampler, ref, start in zip(
            scores(model, row, temperature), old, of_reference, of_proximal, strict=True
        ):
            stripped = row.stripped_of is not None
            capped = settings.importance_cap is not None and not stripped
            weight = min(math.exp(start - sampler), settings.importance_cap or 1.0) if capped else 1.0
            ratio = (current - (start if capped or stripped else sampler)).exp()
            size = abs(row.advantage)
            if stripped:
                rho = math.exp(start - sampler)
                size *= {"none": 1.0, "sqrt": min(1.0, max(0.2, rho**0.5)), "truncated": min(1.0, rho)}[
                    off_policy_weight
                ]
            if row.advantage >= 0:
                most = torch.tensor(1 + settings.clip_high, dtype=torch.float64)
                loss = -size * (ratio if ratio < most else most)
            elif ratio < 1 - settings.clip_low:
                loss = torch.tensor(size * (1 - settings.clip_low), dtype=torch.float64)
            elif settings.dual_clip is not None and ratio > settings.dual_clip:
                loss = torch.tensor(size * settings.dual_clip, dtype=torch.float64)
            else:
                loss = size * ratio
            divergence = (ref - current).exp() - (ref - current) - 1
            losses.append(weight * loss + settings.kl * divergence)
    return torch.stack(losses).mean()
