"""Writing a trained solver as a Hugging Face model folder or a PEFT adapter, which engines and libraries load."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from policies.engine.adapters import write_adapter
from policies.engine.requests import checkpoint_shapes
from policies.models import ModelFolder
from policies.models.folder import DIALECT
from policies.models.merging import merged
from policies.models.writing import write_model
from seal_ray.training.weights import full_weights, lora_adapter


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
