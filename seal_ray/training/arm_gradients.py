"""What training under one interface does for another, to first order: inner products of the solver's policy gradients.

One step of size η along −g(a), the gradient of the loss on the rollouts of arm a, changes the loss on those of arm b by
−η·⟨g(a), g(b)⟩ + O(η²). Gradients are taken on a part of the parameters: those of the adapter, or of the last layer's
MLP. They are taken from the forward passes of the update itself, so that they cost little; in a round of several
gradient steps each row's is that at its own step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from seal_ray.grpo.packing import Packed
from seal_ray.grpo.rows import Row

if TYPE_CHECKING:
    from seal_ray.training.module import LMModule

_MLP = re.compile(r"\.layers\.(\d+)\.mlp\.")


def compared_parameters(module: LMModule) -> list[nn.Parameter]:
    """The parameters whose gradients are compared: all that learn of an adapter, else those of the last layer's MLP."""
    learning = module.learning()
    if any("lora_" in name for name in learning):
        return list(learning.values())
    numbers = {name: int(found[1]) for name in learning if (found := _MLP.search(name))}
    last = max(numbers.values())
    return [learning[name] for name, number in numbers.items() if number == last]


class ArmGradients:
    """Adds up the policy gradient of each arm of a module, as one vector: that of −Σ advantage·log π.

    It is that of GRPO's loss without its KL where the policy is still the one that sampled: all ratios are 1. `seconds`
    is the time that it took.
    """

    def __init__(self, module: LMModule) -> None:
        self.seconds = 0.0
        self._module = module
        self._gradients: dict[str, Tensor] = {}

    @cached_property
    def _parameters(self) -> list[nn.Parameter]:
        return compared_parameters(self._module)

    def add(self, rows: Sequence[Row], packed: Packed, logprobs_M: Tensor) -> None:
        """Adds the gradients of these rows, packed, to those of their arms, if they have one. The graph is kept."""
        started = perf_counter()
        for arm in sorted({row.arm for row in rows if row.arm is not None}):
            of_arm = torch.tensor([row.arm == arm for row in rows], device=logprobs_M.device)
            loss = -(logprobs_M * packed.advantages_M * of_arm[packed.row_M]).sum()
            parts = torch.autograd.grad(loss, self._parameters, retain_graph=True, allow_unused=True)
            self._gradients[arm] = self.gradient(arm) + torch.cat(
                [
                    (torch.zeros_like(each) if part is None else part).flatten().float()
                    for each, part in zip(self._parameters, parts, strict=True)
                ]
            )
        self.seconds += perf_counter() - started

    def gradient(self, arm: str) -> Tensor:
        """`gradient_P` of an arm; 0 where it had no rows."""
        if arm in self._gradients:
            return self._gradients[arm]
        return torch.zeros(sum(each.numel() for each in self._parameters), device=self._parameters[0].device)


def cosines(products_AA: Tensor) -> Tensor:
    """`cosines_AA` from the inner products of A vectors; 0 where one of them is 0."""
    norms_A = products_AA.diagonal().clamp(min=0).sqrt()
    scale_AA = norms_A[:, None] * norms_A[None, :]
    return torch.where(scale_AA > 0, products_AA / scale_AA.clamp(min=torch.finfo(torch.float32).tiny), 0.0)
