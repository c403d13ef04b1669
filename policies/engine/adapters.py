"""LoRA adapters: which ones fit a model, their scaling, and their files."""

import json
import math
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envs.errors import UserError
from envs.received import check_no_links, followed, read_json_object
from policies.engine import Adapter, BadRequest

CONFIG_FILE = "adapter_config.json"
TENSOR_FILE = "adapter_model.safetensors"

_HARMLESS_KEYS = {
    *("auto_mapping", "base_model_name_or_path", "inference_mode", "peft_type", "peft_version", "revision"),
    *("exclude_modules", "layers_pattern", "layers_to_transform", "megatron_core", "target_modules", "task_type"),
    *("corda_config", "eva_config", "init_lora_weights", "loftq_config", "lora_ga_config"),
    *("bias", "ensure_weight_tying", "lora_alpha", "lora_dropout", "qalora_group_size", "r", "use_rslora"),
}
"""Keys of PEFT's config that are checked here, or do not change what a trained adapter computes.

Any other key that is set is a feature that an engine would silently leave out.
"""
_NEUTRAL_INITIALISATIONS = ("gaussian", "eva", "orthogonal")
"""Named initialisations that do not change the base model's weights; the others do."""


def lora_tensor_names(module: str) -> tuple[str, str]:
    """PEFT's names of a module's two halves: A of shape (r, in) and B of shape (out, r)."""
    return f"base_model.model.{module}.lora_A.weight", f"base_model.model.{module}.lora_B.weight"


def scaling(config: Mapping[str, Any]) -> float:
    """The factor of B·A: alpha / r (Hu et al. 2021), or alpha / √r with rsLoRA (Kalajdzievski 2023)."""
    rank = int(config["r"])
    return float(config["lora_alpha"]) / (math.sqrt(rank) if config.get("use_rslora") else rank)


def check_adapter(adapter: Adapter, shapes: Mapping[str, tuple[int, ...]], max_rank: int) -> None:
    """Raises `BadRequest` for an adapter that an engine with this largest rank could not serve exactly.

    `shapes` maps each module that can be adapted to its weight's shape (out, in).
    """
    _check_config(adapter.config, max_rank)
    rank = int(adapter.config["r"])
    modules = {name: module for module in shapes for name in lora_tensor_names(module)}
    if not adapter.tensors:
        raise BadRequest("adapter: it has no tensors.")
    for name, tensor in adapter.tensors.items():
        if name not in modules:
            raise BadRequest(f"adapter: {name!r} is no half of a module of the model that can be adapted.")
        outputs, inputs = shapes[modules[name]]
        half_a, half_b = lora_tensor_names(modules[name])
        for half in (half_a, half_b):
            if half not in adapter.tensors:
                raise BadRequest(f"adapter: {half!r} is missing.")
        expected = (rank, inputs) if name == half_a else (outputs, rank)
        if tuple(tensor.shape) != expected:
            raise BadRequest(f"adapter: {name!r} has shape {tuple(tensor.shape)}; with r = {rank} it is {expected}.")
        if not tensor.is_floating_point() or not bool(tensor.isfinite().all()):
            raise BadRequest(f"adapter: {name!r} has values that are no finite floating-point numbers.")


def _check_config(config: Mapping[str, Any], max_rank: int) -> None:
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not isinstance(rank, int) or not 1 <= rank <= max_rank:
        raise BadRequest(f"adapter: r is {rank!r}; the engine takes 1 to {max_rank} (its max_lora_rank).")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise BadRequest(f"adapter: lora_alpha is {alpha!r}; it must be a finite number.")
    kind = str(getattr(config.get("peft_type"), "value", config.get("peft_type", "LORA")))
    for name, value, served in (("peft_type", kind, "LORA"), ("bias", config.get("bias", "none"), "none")):
        if value != served:
            raise BadRequest(f"adapter: {name} is {value!r}; only {served!r} is served.")
    start = config.get("init_lora_weights", True)
    if isinstance(start, str) and start not in _NEUTRAL_INITIALISATIONS:
        raise BadRequest(f"adapter: init_lora_weights {start!r} changes the base model; convert it to a plain LoRA.")
    for name in sorted(config):
        if config[name] and name not in _HARMLESS_KEYS:
            raise BadRequest(f"adapter: {name} is {config[name]!r}; this feature of PEFT is not served.")


def copy_adapter(adapter: Adapter) -> Adapter:
    """A copy on the CPU: the sender may train on before a restart needs the tensors again."""
    tensors = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in adapter.tensors.items()}
    return Adapter(dict(adapter.config), tensors)


@contextmanager
def adapter_folder(adapter: Adapter) -> Iterator[Path]:
    """A temporary folder in memory with the adapter in PEFT's format.

    Of the config, only the keys that `check_adapter` leaves open are written: a config made in memory may hold sets and
    enums.
    """
    from policies.engine.stored import shared_memory

    config = {
        "peft_type": "LORA",
        "bias": "none",
        "r": adapter.config["r"],
        "lora_alpha": adapter.config["lora_alpha"],
        "use_rslora": bool(adapter.config.get("use_rslora")),
    }
    size = sum(tensor.nbytes for tensor in adapter.tensors.values())
    with tempfile.TemporaryDirectory(dir=shared_memory(size), prefix="adapter-") as name:
        write_adapter(Adapter(config, adapter.tensors), Path(name), base="")
        yield Path(name)


def write_adapter(adapter: Adapter, out: Path, *, base: str) -> None:
    """Writes an adapter of the model named `base` to the folder `out`, as PEFT does."""
    from safetensors.torch import save_file

    config = {
        **adapter.config,
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "target_modules": sorted({name.split(".")[-3] for name in adapter.tensors}),
        "inference_mode": True,
    }
    out.mkdir(parents=True, exist_ok=True)
    (out / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tensors = {name: tensor.contiguous() for name, tensor in adapter.tensors.items()}
    save_file(tensors, out / TENSOR_FILE, metadata={"format": "pt"})


def read_adapter(folder: Path) -> Adapter:
    """Reads an adapter that PEFT or `write_adapter` has written. Raises `UserError` if that fails."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    check_no_links(folder)
    config = read_json_object(followed(folder / CONFIG_FILE), "adapter")
    try:
        return Adapter(config, load_file(folder / TENSOR_FILE))
    except (OSError, SafetensorError) as error:
        raise UserError(f"adapter: {folder / TENSOR_FILE} cannot be read ({error}).") from None
