"""The proof of delivery: sender and receiver hold the same tensors, and the model computes with them.

On CPU vLLM packs linear weights and empties the parameter, so that its own checksums are those of empty tensors, and a
tied output layer keeps the old packing through a reload. The proof therefore looks at what a layer computes: a packed
layer must answer a dense probe exactly, bit for bit, as a layer freshly packed from the sender's tensor does. Adapters
are multiplied straight from the buffer of their slot, so that it is enough to read that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from policies.engine.adapters import names_of

_PROBE_ROWS = 4

_WRAPPED = ".base_layer"
"""The end of a layer's name in a layer that adds adapters to it."""


def stale_modules(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """The modules of the model that do not compute with these checkpoint tensors, by name.

    A tensor that no module is known to use is listed too: what is not checked is not proven.
    """
    stale = []
    unproven = set(tensors)
    for name, module in model.named_modules():
        sources = _sources(model, name.removesuffix(_WRAPPED), module, tensors)
        unproven.difference_update(*sources.values())
        expected = {parameter: torch.cat([tensors[part] for part in parts]) for parameter, parts in sources.items()}
        if expected and not _computes_with(module, expected):
            stale.append(name)
    return stale + sorted(unproven)


def stale_adapter_modules(
    model: nn.Module, slot: int, tensors: Mapping[str, torch.Tensor], scaling: float
) -> list[str]:
    """The modules whose `slot` is not exactly this adapter, by name; B counts `scaling` times, as it is held.

    What the adapter leaves out must be zero, the rest of a wider slot too. A tensor that no module is known to use is
    listed as well.
    """
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    stale = []
    unproven = set(tensors)
    for name, module in model.named_modules():
        if not hasattr(module, "lora_a_stacked"):
            continue
        stacked: tuple[Any, Any] = module.lora_a_stacked, module.lora_b_stacked
        parent, _, leaf = name.rpartition(".")
        # Embeddings and output layers hold one tensor each; none of an adapter's is theirs.
        linear = isinstance(stacked[0], tuple)
        parts = [f"{parent}.{part}" for part in fused.get(leaf, [leaf])] if linear else [""]
        buffers = list(zip(*stacked, strict=True)) if linear else [stacked]
        exact = len(parts) == len(buffers)
        for part, (buffer_a, buffer_b) in zip(parts, buffers, strict=False):
            expected_a, expected_b = torch.zeros_like(buffer_a[slot]), torch.zeros_like(buffer_b[slot])
            halves = [half for half in names_of(part) if half in tensors]
            if len(halves) == 2:
                a, b = (tensors[half].to(expected_a) for half in halves)
                expected_a[0, : a.shape[0]] = a
                expected_b[0, :, : b.shape[1]] = b * scaling
                unproven.difference_update(halves)
            exact &= torch.equal(buffer_a[slot], expected_a) and torch.equal(buffer_b[slot], expected_b)
        if not exact:
            stale.append(name)
    return stale + sorted(unproven)


def _sources(
    model: nn.Module, name: str, module: nn.Module, tensors: Mapping[str, torch.Tensor]
) -> dict[str, list[str]]:
    """Parameter → the checkpoint tensors that it is made of, in the order in which the model fuses them."""
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    parent, _, leaf = name.rpartition(".")
    found: dict[str, list[str]] = {}
    for parameter in module._parameters:
        sources = [f"{parent}.{part}.{parameter}" for part in fused.get(leaf, [])] or [f"{name}.{parameter}"]
        if leaf == "lm_head" and sources[0] not in tensors:
            sources = [f"model.embed_tokens.{parameter}"]  # tied
        if all(source in tensors for source in sources):
            found[parameter] = sources
    return found


def _computes_with(module: nn.Module, expected: Mapping[str, torch.Tensor]) -> bool:
    for name, tensor in expected.items():
        held = module._parameters[name]
        if held is None:
            return False
        if held.numel():
            # Embeddings are padded to a multiple of 64 rows.
            part = held[: tensor.shape[0]]
            if part.shape != tensor.shape or not torch.equal(part, tensor.to(part)):
                return False
    weight = expected.get("weight")
    packed = getattr(module, "cpu_linear", None)
    return weight is None or packed is None or _packed_alike(module, packed, weight)


def _packed_alike(module: nn.Module, packed: Any, weight: torch.Tensor) -> bool:
    """Whether a packed layer answers a dense probe exactly as one packed from `weight` just now."""
    from vllm.model_executor.layers.utils import dispatch_cpu_unquantized_gemm

    held = module._parameters["weight"]
    dtype = held.dtype if held is not None else weight.dtype
    rows = held.shape[0] if held is not None and held.numel() else weight.shape[0]
    padded = torch.zeros(rows, weight.shape[1], dtype=dtype)
    padded[: weight.shape[0]] = weight
    fresh = nn.Module()
    fresh.weight = nn.Parameter(padded, requires_grad=False)
    dispatch_cpu_unquantized_gemm(fresh, remove_weight=False)
    generator = torch.Generator().manual_seed(weight.shape[0] * 31 + weight.shape[1])
    probe = torch.randn(_PROBE_ROWS, weight.shape[1], generator=generator).to(dtype)
    answer = packed(probe, module._parameters["weight"], None)
    return torch.equal(answer, fresh.cpu_linear(probe, fresh.weight, None))  # type: ignore[operator]
