"""Writes Hugging Face model folders: a base model's files with other weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.models.folder import read_json, template_files

if TYPE_CHECKING:
    import torch

_SHARD_BYTES = 4 << 30
"""Largest size of a weight file."""
_KEPT = (
    *("generation_config.json", "tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.txt", "merges.txt"),
)
"""Files of the base model that its tokenizer and its sampling need."""


def write_model(
    base: Path, config: Mapping[str, Any], weights: Mapping[str, torch.Tensor], out: Path, *, dtype: str
) -> None:
    """Writes the base's config, tokenizer and template to `out`, and these weights of type `dtype`.

    Transformers 4.57 reads them too.
    """
    from huggingface_hub import save_torch_state_dict

    copy_files(base, [base / name for name in _KEPT if (base / name).is_file()], out)
    written = {key: value for key, value in config.items() if key != "torch_dtype"} | {"dtype": dtype}
    rope = written.get("rope_parameters") or {}
    if "rope_theta" in rope:
        written["rope_theta"] = rope["rope_theta"]
        written["rope_scaling"] = None if rope.get("rope_type", "default") == "default" else rope
    _write_json(out / "config.json", written)
    tokenizer = out / "tokenizer_config.json"
    settings = read_json(tokenizer) if tokenizer.is_file() else {}
    if settings.get("tokenizer_class") == "TokenizersBackend":  # a name of Transformers 5
        settings["tokenizer_class"] = "PreTrainedTokenizerFast"
        if isinstance(settings.get("extra_special_tokens"), list):
            settings["additional_special_tokens"] = settings.pop("extra_special_tokens")
        _write_json(tokenizer, settings)
    save_torch_state_dict(unshared(weights), out, max_shard_size=_SHARD_BYTES)


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def copy_files(base: Path, files: Iterable[Path], out: Path) -> None:
    """Copies files of `base`, and its chat templates, to the same places in `out`."""
    for path in {*files, *template_files(base)}:
        copy = out / path.relative_to(base)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def unshared(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors, contiguous; those that share memory are copied, which a safetensors file needs."""
    tensors: dict[str, torch.Tensor] = {}
    places = set[int]()
    for name, tensor in weights.items():
        whole = tensor.contiguous()
        tensors[name] = whole.clone() if whole.data_ptr() in places else whole
        places.add(whole.data_ptr())
    return tensors
