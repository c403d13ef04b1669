"""Weights of a module for an engine or a folder: with the names of the model's folder, or of PEFT."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from policies.engine import Adapter
from policies.engine.adapters import write_adapter
from policies.engine.requests import checkpoint_shapes
from policies.models import ModelFolder
from policies.models.folder import DIALECT
from policies.models.merging import merged
from policies.models.writing import write_model

_PREFIX = "language_model."
_EMBEDDING, _OUTPUT = "model.embed_tokens.weight", "lm_head.weight"
T = TypeVar("T", bound=torch.Tensor)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def full_weights(
    state: Mapping[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]], dtype: str
) -> dict[str, torch.Tensor]:
    """The checkpoint's tensors (names of `shapes`) in the engine's dtype."""
    named = by_checkpoint_name(state)
    return {name: named[name].to(DTYPES[dtype]) for name in shapes}


def by_checkpoint_name(state: Mapping[str, T]) -> dict[str, T]:
    """A module's tensors by their names in a checkpoint. A tied output layer is the embedding."""
    named = {name.removeprefix(_PREFIX): tensor for name, tensor in state.items()}
    if _EMBEDDING in named:
        named.setdefault(_OUTPUT, named[_EMBEDDING])
    return named


def lora_adapter(state: Mapping[str, torch.Tensor], *, rank: int, alpha: int) -> Adapter:
    """The learnt adapter in float32, with PEFT's names."""
    tensors = {
        name.removeprefix(_PREFIX).replace(".default.", "."): tensor
        for name, tensor in state.items()
        if "lora_" in name
    }
    config: dict[str, Any] = {"peft_type": "LORA", "r": rank, "lora_alpha": alpha, "bias": "none"}
    return Adapter(config, tensors)


def export_model(
    base: ModelFolder, state: Mapping[str, torch.Tensor], out: Path, *, dtype: str, rank: int = 0, alpha: int = 1
) -> None:
    """Writes the solver to `out`: the base's folder with the weights of `state` in `dtype`, and its dialect's name.

    With a rank, `state` is a LoRA adapter, which is added to the base's weights: W + (alpha / rank)·B·A.
    """
    whole = merged(base.path, lora_adapter(state, rank=rank, alpha=alpha)) if rank else state
    weights = full_weights(whole, checkpoint_shapes(base.path), dtype)
    write_model(base.path, {**base.config, DIALECT: base.dialect.name}, weights, out, dtype=dtype)


def export_adapter(base: ModelFolder, state: Mapping[str, torch.Tensor], out: Path, *, rank: int, alpha: int) -> None:
    """Writes the LoRA adapter of `state` to `out` in PEFT's format and float32, as engines use it."""
    write_adapter(lora_adapter(state, rank=rank, alpha=alpha), out, base=base.public_name)
