"""Weight updates inside a vLLM worker, and the proof that the worker computes with what it was sent.

vLLM loads this class into its worker process (`worker_extension_cls`); the engine calls its methods by
`collective_rpc`. Weights travel as a safetensors file. Written for vLLM 0.32 and one tensor-parallel rank.

On CPU vLLM packs linear weights and empties the parameter, so that its own checksums are those of empty tensors, and a
tied output layer keeps the old packing through a reload. The proof therefore looks at what a layer computes: a packed
layer must answer a dense probe exactly, bit for bit, as a layer freshly packed from the sender's tensor does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from policies.engine.fingerprint import digest
from policies.engine.vllm_patches import apply_patches

_PROBE_ROWS = 4

apply_patches()  # this module is imported by workers only


class WeightsExtension:
    """Mixed into vLLM's worker."""

    model_runner: Any
    vllm_config: Any

    def update_full_weights(self, path: str, expected_digest: str) -> list[str]:
        """Loads the file into the model and returns the names of modules that do not compute with it (none, if well).

        Raises `RuntimeError` where the file is not what was sent.
        """
        tensors = load_file(path)
        if digest(tensors) != expected_digest:
            raise RuntimeError("the weight file is not the one that was sent")
        self.load(tensors)
        return stale_modules(self.model_runner.model, tensors)

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Loads checkpoint tensors into the model as it stands."""
        _reload(self.model_runner.model, tensors, self.vllm_config.model_config)


def _reload(model: nn.Module, tensors: Mapping[str, torch.Tensor], model_config: Any) -> None:
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.model_executor.model_loader.reload.layerwise import (
        finalize_layerwise_reload,
        initialize_layerwise_reload,
    )

    device = next(model.parameters()).device
    with torch.device(device):
        initialize_layerwise_reload(model)
        model.load_weights(iter(tensors.items()))  # type: ignore[operator]
        finalize_layerwise_reload(model, model_config)  # type: ignore[no-untyped-call]
    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            # A tied head is not loaded, and so not packed again: it would answer with the old weights.
            module.quant_method.process_weights_after_loading(module)


def stale_modules(model: nn.Module, tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """The modules of the model that do not compute with these checkpoint tensors, by name."""
    stale = []
    for name, module in model.named_modules():
        expected = _expected(model, name, module, tensors)
        if expected and not _computes_with(module, expected):
            stale.append(name)
    return stale


def _expected(
    model: nn.Module, name: str, module: nn.Module, tensors: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Parameter → the tensor that it should hold, fused as the model fuses it. Empty for modules without weights."""
    fused: Mapping[str, list[str]] = getattr(model, "packed_modules_mapping", {})
    parent, _, leaf = name.rpartition(".")
    found = {}
    for parameter in module._parameters:
        sources = [f"{parent}.{part}.{parameter}" for part in fused.get(leaf, [])] or [f"{name}.{parameter}"]
        if leaf == "lm_head" and sources[0] not in tensors:
            sources = [f"model.embed_tokens.{parameter}"]  # tied
        if all(source in tensors for source in sources):
            found[parameter] = torch.cat([tensors[source] for source in sources])
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
