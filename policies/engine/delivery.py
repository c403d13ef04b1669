"""The proof of delivery: sender and receiver hold the same tensors, and the model computes with them.

On CPU vLLM packs linear weights and empties the parameter, so that its own checksums are those of empty tensors, and a
tied output layer keeps the old packing through a reload. The proof therefore looks at what a layer computes: a packed
layer must answer a dense probe exactly, bit for bit, as a layer freshly packed from the sender's tensor does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

_PROBE_ROWS = 4


def digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """A fingerprint of named tensors: names, types, shapes and every byte."""
    total = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(tensor.view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")
    return total.hexdigest()


def stale_modules(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """The modules of the model that do not compute with these checkpoint tensors, by name.

    A tensor that no module is known to use is listed too: what is not checked is not proven.
    """
    stale = []
    unproven = set(tensors)
    for name, module in model.named_modules():
        sources = _sources(model, name, module, tensors)
        unproven.difference_update(*sources.values())
        expected = {parameter: torch.cat([tensors[part] for part in parts]) for parameter, parts in sources.items()}
        if expected and not _computes_with(module, expected):
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
