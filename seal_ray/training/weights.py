"""Weights of a module for an engine: with the names of the model's folder, or of PEFT."""

from collections.abc import Mapping
from typing import Any

import torch

from policies.engine import Adapter

_PREFIX = "language_model."
_EMBEDDING, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def full_weights(
    state: Mapping[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]], dtype: str
) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors (names of `shapes`) in the engine's dtype. A tied output layer is the embedding."""
    named = {name.removeprefix(_PREFIX): tensor for name, tensor in state.items()}
    if _EMBEDDING in named:
        named.setdefault(_OUTPUT, named[_EMBEDDING])
    return {name: named[name].to(_DTYPES[dtype]) for name in shapes}


def lora_adapter(state: Mapping[str, torch.Tensor], *, rank: int, alpha: int) -> Adapter:
    """The learnt adapter in float32, with PEFT's names."""
    tensors = {
        name.removeprefix(_PREFIX).replace(".default.", "."): tensor
        for name, tensor in state.items()
        if "lora_" in name
    }
    config: dict[str, Any] = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none"}
    return Adapter(config, tensors)
