"""The proof of delivery: sender and receiver hold the same tensors, and the model computes with them.

On CPU vLLM packs linear weights and empties the parameter: its own checksums are those of empty tensors, and a tied
output layer keeps the old packing through a reload. The proof therefore checks what a layer computes: a packed layer
must map a dense probe to the same bits as a layer freshly packed from the sender's tensor. Adapters are multiplied
straight from the buffer of their slot, so that comparing the buffer is enough.

Each tensor-parallel rank proves the slices that it computes with: rows of some layers, columns of others, by the sizes
that the layer or the buffer has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from policies.engine.adapters import lora_tensor_names

Tensors = Mapping[str, torch.Tensor]
_PROBE_ROWS = 4

_WRAPPED = ".base_layer"
"""The end of a layer's name inside a layer that adds adapters to it."""


@dataclass(frozen=True, slots=True)
class RankSlicer:
    """Slices whole tensors for one of an engine's `count` tensor-parallel ranks."""

    index: int = 0
    count: int = 1

    def slice(self, tensor: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """The slice of these sizes that the rank computes with; the last one of a vocabulary is shorter.

        If there are fewer slices than ranks, as of keys and values, neighbouring ranks have the same one.
        """
        for axis, (size, length) in enumerate(zip(sizes, tensor.shape, strict=False)):
            start = min(self.index * math.ceil(length / size) // self.count * size, length)
            tensor = tensor.narrow(axis, start, min(size, length - start))
        return tensor

    def slice_parts(self, module: nn.Module, parts: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The slices of the whole tensors of which a module's parameter consists."""
        rows: Any = getattr(module, "output_partition_sizes", None)
        if self.count == 1 or rows is None:
            return parts
        columns = getattr(module, "input_size_per_partition", parts[0].shape[-1])
        return [self.slice(part, (size, columns)) for part, size in zip(parts, rows, strict=True)]


WHOLE = RankSlicer()


def stale_modules(model: nn.Module, tensors: Tensors, slicer: RankSlicer = WHOLE) -> list[str]:
    """The names of the modules that do not compute with these checkpoint tensors, sliced for a rank.

    A tensor that no module is known to use is listed too: an unchecked tensor is not proven.
    """
    stale = []
    unproven = set(tensors)
    for name, module in model.named_modules():
        sources = _source_tensors(model, name.removesuffix(_WRAPPED), module, tensors)
        unproven.difference_update(*sources.values())
        expected = {
            parameter: torch.cat(tuple(slicer.slice_parts(module, [tensors[part] for part in parts])))
            for parameter, parts in sources.items()
        }
        if expected and not _computes_with(module, expected):
            stale.append(name)
    return stale + sorted(unproven)


def stale_adapter_modules(
    model: nn.Module, slot: int, tensors: Tensors, scaling: float, slicer: RankSlicer = WHOLE
) -> list[str]:
    """The names of the modules whose `slot` is not exactly this adapter, sliced, with B multiplied by `scaling`.

    Modules and ranks that the adapter lacks must be zero. A tensor that no module is known to use is listed as well.
    """
    stale = []
    unproven = set(tensors)
    for name, module in model.named_modules():
        if not hasattr(module, "lora_a_stacked"):
            continue
        stacked: tuple[Any, Any] = module.lora_a_stacked, module.lora_b_stacked
        # Embeddings and output layers hold one tensor each; an adapter has none for them.
        linear = isinstance(stacked[0], tuple)
        parts = fused_parts(model, name) if linear else [""]
        buffers = list(zip(*stacked, strict=True)) if linear else [stacked]
        exact = len(parts) == len(buffers)
        for part, (buffer_a, buffer_b) in zip(parts, buffers, strict=False):
            expected_a, expected_b = torch.zeros_like(buffer_a[slot]), torch.zeros_like(buffer_b[slot])
            halves = [half for half in lora_tensor_names(part) if half in tensors]
            if len(halves) == 2:
                a, b = (tensors[half].to(expected_a) for half in halves)
                expected_a[0, : a.shape[0]] = slicer.slice(a, (len(a), expected_a.shape[-1]))
                expected_b[0, :, : b.shape[1]] = slicer.slice(b, (expected_b.shape[1], b.shape[1])) * scaling
                unproven.difference_update(halves)
            exact &= torch.equal(buffer_a[slot], expected_a) and torch.equal(buffer_b[slot], expected_b)
        if not exact:
            stale.append(name)
    return stale + sorted(unproven)


def is_tied(model: Any) -> bool:
    """Whether the output layer's weights are the embedding's."""
    return bool(model.config.tie_word_embeddings)


def fused_parts(model: nn.Module, name: str) -> list[str]:
    """The modules of a checkpoint that vLLM fuses into one, in its order; the module itself if it is not fused."""
    parent, _, leaf = name.rpartition(".")
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    return [f"{parent}.{part}" for part in fused[leaf]] if leaf in fused else [name]


def _source_tensors(model: nn.Module, name: str, module: nn.Module, tensors: Tensors) -> dict[str, list[str]]:
    """Parameter → the checkpoint tensors that it consists of, in their order."""
    parts = fused_parts(model, name)
    if name.rpartition(".")[2] == "lm_head" and f"{name}.weight" not in tensors and is_tied(model):
        parts = ["model.embed_tokens"]
    sources = {parameter: [f"{part}.{parameter}" for part in parts] for parameter in module._parameters}
    return {parameter: names for parameter, names in sources.items() if all(name in tensors for name in names)}


def _computes_with(module: nn.Module, expected: Tensors) -> bool:
    for name, tensor in expected.items():
        parameter = module._parameters[name]
        if parameter is None:
            return False
        if parameter.numel():
            # Embeddings are padded to a multiple of 64 rows.
            part = parameter[: tensor.shape[0]]
            if part.shape != tensor.shape or not torch.equal(part, tensor.to(part)):
                return False
    weight = expected.get("weight")
    packed = getattr(module, "cpu_linear", None)
    return weight is None or packed is None or _is_packed_from(weight, module, packed)


def _is_packed_from(weight: torch.Tensor, module: nn.Module, packed: Any) -> bool:
    """Whether a packed layer maps a dense probe to exactly what one packed from `weight` just now gives."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    parameter = module._parameters["weight"]
    dtype = parameter.dtype if parameter is not None else weight.dtype
    rows = parameter.shape[0] if parameter is not None and parameter.numel() else weight.shape[0]
    padded = torch.zeros(rows, weight.shape[1], dtype=dtype)
    padded[: weight.shape[0]] = weight
    fresh = nn.Module()
    fresh.weight = nn.Parameter(padded, requires_grad=False)
    dispatch_cpu_unquantized_gemm(fresh, remove_weight=False)
    generator = torch.Generator().manual_seed(weight.shape[0] * 31 + weight.shape[1])
    probe = torch.randn(_PROBE_ROWS, weight.shape[1], generator=generator).to(dtype)
    return torch.equal(packed(probe, parameter, None), fresh.cpu_linear(probe, fresh.weight, None))  # type: ignore[operator]
