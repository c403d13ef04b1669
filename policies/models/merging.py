"""LoRA adapters merged into a model's weights, and extracted from a change of weights."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import safe_open

from envs.errors import UserError
from policies.engine import Adapter
from policies.engine.adapters import check_adapter, lora_tensor_names, scaling
from policies.engine.requests import adaptable_shapes, checkpoint_shapes

if TYPE_CHECKING:
    import torch

_WEIGHT = ".weight"
_NOT_ADAPTED = ("embed_tokens", "lm_head")
"""Layers without LoRA: the embedding and the output."""


def merged(base: Path, adapter: Adapter) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors in float32, with the adapter added: W + s·B·A (Hu et al. 2021).

    Raises `BadRequest` for an adapter that does not fit the model.
    """
    check_adapter(adapter, adaptable_shapes(checkpoint_shapes(base)), max_rank=sys.maxsize)
    halves, factor = adapter.tensors, scaling(adapter.config)
    weights: dict[str, torch.Tensor] = {}
    for name, tensor in _tensors(base):
        half_a, half_b = lora_tensor_names(name.removesuffix(_WEIGHT))
        added = factor * halves[half_b].float() @ halves[half_a].float() if half_a in halves else 0.0
        weights[name] = tensor + added
    return weights


def extracted(base: Path, tuned: Path, *, rank: int) -> tuple[Adapter, float]:
    """The float16 adapter of that rank nearest to the change, and its share of the changes' sum of squares.

    Each matrix that differs between `base` and `tuned` is cut to its greatest singular values (Eckart and Young 1936),
    whose roots go to both halves. Embeddings and vectors are left out. Raises `UserError` if the models differ in
    shape, or not at all, or the rank exceeds that of the smallest matrix.
    """
    import torch

    before = dict(_tensors(base))
    tensors: dict[str, torch.Tensor] = {}
    kept = whole = 0.0
    for name, after in _tensors(tuned):
        if name not in before or before[name].shape != after.shape:
            raise UserError(f"--base: {name} of {tuned} is not there or of another shape; give what it came from.")
        change = after - before[name]
        whole += float(change.square().sum())
        if change.ndim != 2 or any(layer in name for layer in _NOT_ADAPTED) or not bool(change.any()):
            continue
        if rank > min(change.shape):
            raise UserError(f"--rank: {rank} is more than {name} has, {min(change.shape)}.")
        left, values, right = torch.linalg.svd(change, full_matrices=False)
        half_a, half_b = lora_tensor_names(name.removesuffix(_WEIGHT))
        roots = values[:rank].sqrt()
        tensors[half_a] = (roots[:, None] * right[:rank]).half().contiguous()
        tensors[half_b] = (left[:, :rank] * roots).half().contiguous()
        kept += float(values[:rank].square().sum())
    if not tensors:
        raise UserError(f"--base: no matrix of {tuned} differs from it.")
    config: dict[str, Any] = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}
    return Adapter(config, tensors), kept / whole


def _tensors(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors of a checkpoint, one at a time, in float32."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                yield name, file.get_tensor(name).float()
