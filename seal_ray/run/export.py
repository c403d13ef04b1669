"""Writing a trained solver as a Hugging Face model folder, or as a PEFT adapter, which engines and libraries load."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from policies.engine.requests import checkpoint_shapes
from policies.models import ModelFolder
from seal_ray.algorithm.learning.weights import full_weights, lora_adapter

_SHARD_BYTES = 4 << 30
"""Size of a weight file, where one alone would be larger."""


def export_model(
    base: ModelFolder, state: Mapping[str, torch.Tensor], out: Path, *, dtype: str, rank: int = 0, alpha: int = 1
) -> None:
    """Writes the solver to `out`: the base's folder with the weights of `state` in `dtype`.

    With a rank, `state` is a LoRA adapter, which is added to the base's weights: W + (alpha / rank)·B·A.
    """
    out.mkdir(parents=True, exist_ok=True)
    for path in base.path.iterdir():
        if path.is_file() and path.suffix in {".json", ".jinja", ".model", ".txt"} and "safetensors" not in path.name:
            shutil.copyfile(path, out / path.name)
    config = {**base.config, "dtype": dtype}
    config.pop("torch_dtype", None)
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shapes = checkpoint_shapes(base.path)
    weights = _merged(base, state, shapes, dtype, rank, alpha) if rank else full_weights(state, shapes, dtype)
    _save(weights, out)


def export_adapter(base: ModelFolder, state: Mapping[str, torch.Tensor], out: Path, *, rank: int, alpha: int) -> None:
    """Writes the LoRA adapter of `state` to `out` in PEFT's format and float32, as the engines had it."""
    from safetensors.torch import save_file

    from policies.engine.adapters import CONFIG_FILE, TENSOR_FILE

    adapter = lora_adapter(state, rank=rank, alpha=alpha)
    config = {
        **adapter.config,
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base.name,
        "target_modules": sorted({name.split(".")[-3] for name in adapter.tensors}),
        "inference_mode": True,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {name: tensor.contiguous() for name, tensor in adapter.tensors.items()}
    save_file(tensors, out / TENSOR_FILE, metadata={"format": "pt"})


def _merged(
    base: ModelFolder, state: Mapping[str, torch.Tensor], shapes: Mapping[str, Any], dtype: str, rank: int, alpha: int
) -> dict[str, torch.Tensor]:
    from safetensors import safe_open

    from policies.engine.adapters import names_of, scaling

    adapter = lora_adapter(state, rank=rank, alpha=alpha)
    halves, factor = adapter.tensors, scaling(adapter.config)
    merged: dict[str, torch.Tensor] = {}
    for path in sorted(base.path.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                tensor = file.get_tensor(name).float()
                half_a, half_b = names_of(name.removesuffix(".weight"))
                if half_a in halves:
                    tensor = tensor + factor * halves[half_b].float() @ halves[half_a].float()
                merged[name] = tensor
    return full_weights(merged, shapes, dtype)


def _save(weights: Mapping[str, torch.Tensor], out: Path) -> None:
    from huggingface_hub import split_torch_state_dict_into_shards
    from safetensors.torch import save_file

    whole = {name: tensor.contiguous() for name, tensor in weights.items()}
    plan = split_torch_state_dict_into_shards(whole, max_shard_size=_SHARD_BYTES)
    for file, names in plan.filename_to_tensors.items():
        save_file({name: whole[name] for name in names}, out / file, metadata={"format": "pt"})
    if plan.is_sharded:
        index = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
