"""A Hugging Face model folder, checked before anything is started with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.dialects import Dialect, get_dialect
from envs.errors import UserError
from policies import tiny

_DIALECTS = {"qwen2": "qwen", "qwen3": "qwen", "llama": "llama3_json"}
"""Architecture → how its models call tools, unless their name says otherwise."""
_TOOLACE = "toolace"
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder that holds a causal language model whole.

    `context` is the longest sequence that the model was made for, in tokens; `config` its config.json.
    """

    path: Path
    dialect: Dialect
    context: int
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """A short name for tables and folders."""
        shipped = (name for name, folder in tiny.SHIPPED.items() if folder == self.path)
        return next(shipped, self.path.resolve().name)

    def fingerprint(self) -> dict[str, list[int]]:
        """File → size and time of change in nanoseconds: identifies the model, for a later run."""
        files = sorted(path for path in self.path.iterdir() if path.is_file())
        return {path.name: [path.stat().st_size, path.stat().st_mtime_ns] for path in files}

    def kv_bytes_per_token(self, bytes_per_value: int) -> int:
        """What one token takes in the cache of keys and values."""
        heads = self.config["num_attention_heads"]
        kv_heads = self.config.get("num_key_value_heads") or heads
        size = self.config.get("head_dim") or self.config["hidden_size"] // heads
        return int(2 * self.config["num_hidden_layers"] * kv_heads * size * bytes_per_value)


def open_model(name: str, *, dialect: str | None = None) -> ModelFolder:
    """The model folder of that path, or a shipped one by its name.

    `dialect` overrules what the architecture suggests. Raises `UserError` with one sentence for a folder that is
    missing, lacks a file, or holds no model that calls tools in a known way.
    """
    path = tiny.SHIPPED.get(name, Path(name))
    if not path.is_dir():
        shipped = " or ".join(map(repr, tiny.SHIPPED))
        raise UserError(f"model: {name!r} is no folder; give a Hugging Face model folder, or {shipped}.")
    config = read_json(path / "config.json")
    kind = str(config.get("model_type"))
    if dialect is None:
        dialect = _TOOLACE if _TOOLACE in path.resolve().name.lower() else _DIALECTS.get(kind)
        if dialect is None:
            known = ", ".join(_DIALECTS)
            raise UserError(f"model: {path} is of type {kind!r}, not one of {known}; say how it calls with --dialect.")
    context = config.get("max_position_embeddings")
    if type(context) is not int or context < 1:
        raise UserError(f"model: {path / 'config.json'} does not say max_position_embeddings, the model's context.")
    _check_weights(path)
    if not any((path / file).is_file() for file in _TOKENIZERS):
        raise UserError(f"model: {path} has no tokenizer; one of {', '.join(_TOKENIZERS)} is needed.")
    return ModelFolder(path, get_dialect(dialect), context, config)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model folder. Raises `UserError` where there is none."""
    if not path.is_file():
        raise UserError(f"model: {path.parent} has no {path.name}.")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"model: {path} is not valid JSON ({error}).") from error
    if not isinstance(value, dict):
        raise UserError(f"model: {path} is not a JSON object.")
    return value


def _check_weights(path: Path) -> None:
    from safetensors import SafetensorError, safe_open

    files = {file.name for file in path.glob("*.safetensors")}
    if (path / "model.safetensors.index.json").is_file():
        needed = set(read_json(path / "model.safetensors.index.json").get("weight_map", {}).values())
        missing = sorted(needed - files)
        if missing:
            raise UserError(f"model: {path} lacks {len(missing)} of {len(needed)} weight files, first {missing[0]}.")
    if not files:
        raise UserError(f"model: {path} has no weights; *.safetensors files are needed.")
    for file in sorted(files):
        try:
            with safe_open(path / file, framework="np"):  # without PyTorch, as nothing is read but the header
                pass
        except SafetensorError as error:
            raise UserError(f"model: {path / file} cannot be read ({error}); copy it again.") from error
