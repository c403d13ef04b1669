"""What training under one interface does for another, to first order: inner products of the solver's policy gradients.

One step of size η along −g(a), the gradient of the loss on the rollouts of arm a, changes the loss on those of arm b by
−η·⟨g(a), g(b)⟩ + O(η²). Gradients are taken on a part of the parameters: those of the adapter, or of the last layer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seal_ray.grpo.packing import collate, pack
from seal_ray.grpo.rows import Row

if TYPE_CHECKING:
    from seal_ray.algorithm.module import LMModule

_LAYER = re.compile(r"\.layers\.(\d+)\.")


def compared_parameters(module: LMModule) -> list[nn.Parameter]:
    """The parameters whose gradients are compared: all that learn of an adapter, else those of the last layer."""
    learning = module.learning()
    if any("lora_" in name for name in learning):
        return list(learning.values())
    numbers = {name: int(found[1]) for name in learning if (found := _LAYER.search(name))}
    last = max(numbers.values())
    return [learning[name] for name, number in numbers.items() if number == last]


def policy_gradient(
    module: LMModule, rows: Sequence[Row], *, global_tokens: int, microbatch_tokens: int, device: torch.device
) -> Tensor:
    """`gradient_P` of −Σ advantage·log π / `global_tokens` over the sampled tokens of the rows, as one vector.

    It is that of GRPO's loss without its KL where the policy is still the one that sampled: all ratios are 1.
    """
    parameters = compared_parameters(module)
    gradient_P = torch.zeros(sum(each.numel() for each in parameters), device=device)
    for members in pack([len(row) for row in rows], microbatch_tokens):
        packed = collate([rows[place] for place in members]).to(device)
        loss = -(packed.advantages_M * module.logprobs(packed)).sum() / global_tokens
        parts = torch.autograd.grad(loss, parameters, allow_unused=True)
        gradient_P += torch.cat(
            [
                (torch.zeros_like(each) if part is None else part).flatten().float()
                for each, part in zip(parameters, parts, strict=True)
            ]
        )
    return gradient_P


def cosines(products_AA: Tensor) -> Tensor:
    """`cosines_AA` from the inner products of A vectors; 0 where one of them is 0."""
    norms_A = products_AA.diagonal().clamp(min=0).sqrt()
    scale_AA = norms_A[:, None] * norms_A[None, :]
    return torch.where(scale_AA > 0, products_AA / scale_AA.clamp(min=torch.finfo(torch.float32).tiny), 0.0)
