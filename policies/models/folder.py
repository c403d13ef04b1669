"""A Hugging Face model folder, checked before anything is started with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.dialects import Dialect, get_dialect
from envs.errors import UserError
from envs.received import MAX_BYTES, check_no_links, followed, read_json_object, read_text

_DIALECTS = {"qwen2": "qwen", "qwen3": "qwen", "llama": "llama3_json"}
"""Architecture → how its models call tools, unless their name or their chat template says otherwise."""
_MARKUP = {"<tool_call>": "qwen"}
"""What stands in a chat template → how models with it call tools."""
_TOOLACE = "toolace"
DIALECT = "seal_ray_dialect"
"""The key of config.json under which a trained model says how it calls tools: no name or template may tell it."""
DATA_ONLY = {"trust_remote_code": False, "use_safetensors": True}
"""What transformers is told of every model: code in its folder is not run, not even after a question of its own."""
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
    name: str
    """A short name for tables and folders."""
    repository: str | None = None
    """The hub's OWNER/NAME, of a model that comes from there."""

    @property
    def public_name(self) -> str:
        """What others find the model by."""
        return self.repository or self.name

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


def check_folder(
    path: Path,
    *,
    dialect: str | None = None,
    name: str | None = None,
    weights: bool = True,
    repository: str | None = None,
) -> ModelFolder:
    """The model of a folder; `dialect` overrules what it suggests, `name` is not the folder's if it is given.

    `repository` is the hub's that the folder comes from.

    Without `weights`, neither these nor a tokenizer need be there. Raises `UserError` with one sentence for a folder
    that lacks a file, or holds no model that calls tools in a known way.
    """
    check_no_links(path)
    config = read_json(path / "config.json")
    kind = str(config.get("model_type"))
    if dialect is None:
        said = config.get(DIALECT)
        dialect = _dialect_of(path, kind, name or "") if said is None else str(said)
        if dialect is None:
            known = ", ".join(_DIALECTS)
            raise UserError(f"model: {path} is of type {kind!r}, not one of {known}; say how it calls with --dialect.")
    context = config.get("max_position_embeddings")
    if type(context) is not int or context < 1:
        raise UserError(f"model: {path / 'config.json'} does not say max_position_embeddings, the model's context.")
    if weights:
        check_weights(path)
        if not has_tokenizer(path):
            raise UserError(f"model: {path} has no tokenizer; one of {', '.join(_TOKENIZERS)} is needed.")
    return ModelFolder(path, get_dialect(dialect), context, config, name or path.resolve().name, repository)


def _dialect_of(path: Path, kind: str, name: str) -> str | None:
    """How the model calls tools, by its names, its chat template, or its architecture."""
    if _TOOLACE in path.resolve().name.lower() or _TOOLACE in name.lower():
        return _TOOLACE
    if kind not in _DIALECTS:
        return None
    template = template_of(path)
    return next((dialect for mark, dialect in _MARKUP.items() if mark in template), _DIALECTS[kind])


def has_tokenizer(path: Path) -> bool:
    return any((path / file).is_file() for file in _TOKENIZERS)


def template_of(path: Path) -> str:
    """The folder's chat template, from a file of its own or the tokenizer's config; empty where it has none."""
    own, config = path / "chat_template.jinja", path / "tokenizer_config.json"
    if own.is_file():
        return read_text(followed(own), "model")
    return str(read_json(config).get("chat_template", "")) if config.is_file() else ""


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model folder. Raises `UserError` where there is none."""
    if not path.is_file():
        raise UserError(f"model: {path.parent} has no {path.name}.")
    return read_json_object(followed(path), "model", MAX_BYTES)


def check_weights(path: Path) -> None:
    """Raises `UserError` with one sentence where the folder does not hold all weight files, each whole."""
    from safetensors import SafetensorError, safe_open

    files = {file.name for file in path.glob("*.safetensors")}
    if (path / "model.safetensors.index.json").is_file():
        places = read_json(path / "model.safetensors.index.json").get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
            raise UserError(f"model: {path / 'model.safetensors.index.json'} has no weight_map from tensors to files.")
        needed = set(places.values())
        missing = sorted(needed - files)
        if missing:
            raise UserError(f"model: {path} lacks {len(missing)} of {len(needed)} weight files, first {missing[0]}.")
    elif "model.safetensors" not in files:
        raise UserError(f"model: {path} has no weights; model.safetensors, or parts of it with an index, are needed.")
    if (path / "adapter_config.json").exists():
        raise UserError(f"model: {path} holds an adapter; give the model, and the adapter with --adapter.")
    for file in sorted(files):
        try:
            with safe_open(path / file, framework="np"):  # without PyTorch, as nothing is read but the header
                pass
        except (SafetensorError, OSError) as error:
            raise UserError(f"model: {path / file} cannot be read ({error}); copy it again.") from error
