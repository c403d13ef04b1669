"""Transfer of training between arms, to first order: inner products of the solver's policy gradients.

A step of size η along −g(a), the gradient of the loss on the rollouts of arm a, changes the loss on the rollouts of arm
b by −η·⟨g(a), g(b)⟩ + O(η²). Gradients cover the adapter, or else the MLP of the last layer, and are computed in the
forward passes of the update, each row's at its own gradient step.
"""

import re
from collections.abc import Sequence
from functools import cached_property
from time import perf_counter

import torch
from torch import Tensor, nn

from seal_ray.grpo.packing import Packed, Row
from seal_ray.training.module import LMModule

_MLP = re.compile(r"\.layers\.(\d+)\.mlp\.")


def compared_parameters(module: LMModule) -> list[nn.Parameter]:
    """The parameters whose gradients are compared: the adapter's, else the MLP's of the last layer."""
    learning = module.learning()
    if any("lora_" in name for name in learning):
        return list(learning.values())
    numbers = {name: int(found[1]) for name in learning if (found := _MLP.search(name))}
    last = max(numbers.values())
    return [learning[name] for name, number in numbers.items() if number == last]


class ArmGradients:
    """Sums the policy gradient of each arm of a module, as one vector: the gradient of −Σ advantage·log π.

    It equals the gradient of GRPO's loss without its KL while all ratios are 1. `seconds` is the time that it took.
    """

    def __init__(self, module: LMModule) -> None:
        self.seconds = 0.0
        self._module = module
        self._gradients: dict[str, Tensor] = {}

    @cached_property
    def _parameters(self) -> list[nn.Parameter]:
        return compared_parameters(self._module)

    def add(self, rows: Sequence[Row], packed: Packed, logprobs_M: Tensor) -> None:
        """Adds the gradients of these packed rows to the gradients of their arms. The graph is kept."""
        started = perf_counter()
        for arm in sorted({row.arm for row in rows if row.arm is not None}):
            selected = torch.tensor([row.arm == arm for row in rows], device=logprobs_M.device)
            loss = -(logprobs_M * packed.advantages_M * selected[packed.row_M]).sum()
            parts = torch.autograd.grad(
                loss, self._parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            self._gradients[arm] = self.gradient(arm) + torch.cat([part.flatten().float() for part in parts])
        self.seconds += perf_counter() - started

    def gradient(self, arm: str) -> Tensor:
        """`gradient_P` of an arm; 0 without rows."""
        if arm in self._gradients:
            return self._gradients[arm]
        return torch.zeros(sum(each.numel() for each in self._parameters), device=self._parameters[0].device)


def cosines(products_AA: Tensor) -> Tensor:
    """`cosines_AA` from the inner products of A vectors; 0 for a vector of zeros."""
    norms_A = products_AA.diagonal().clamp(min=0).sqrt()
    scale_AA = norms_A[:, None] * norms_A[None, :]
    return torch.where(scale_AA > 0, products_AA / scale_AA.clamp(min=torch.finfo(torch.float32).tiny), 0.0)
