"""Hugging Face model folders, checked before they are used."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.dialects import Dialect, get_dialect
from envs.errors import UserError
from envs.received import MAX_BYTES, check_no_links, followed, read_json_object, read_text

_DIALECTS = {"qwen2": "qwen", "qwen3": "qwen", "llama": "llama3_json"}
"""Architecture → dialect, unless the model's name or chat template says otherwise."""
_TOOLACE = "toolace"
DIALECT = "seal_ray_dialect"
"""The key of config.json with a trained model's dialect, since neither name nor template may show it."""
DATA_ONLY = {"trust_remote_code": False, "use_safetensors": True}
"""transformers' arguments for every model: code in its folder never runs, not even after a question to the user."""
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json")


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """A folder with a complete causal language model.

    `context` is the model's longest sequence in tokens, `config` its config.json. `name` is short, for tables and
    folders; `repository` is the hub's OWNER/NAME, if it comes from there.
    """

    path: Path
    dialect: Dialect
    context: int
    config: Mapping[str, Any]
    name: str
    repository: str | None = None

    @property
    def public_name(self) -> str:
        """The name by which others find the model."""
        return self.repository or self.name

    def fingerprint(self) -> dict[str, list[int]]:
        """File → size and time of change in nanoseconds, to identify the model in a later run."""
        files = sorted(path for path in {*self.path.iterdir(), *template_files(self.path)} if path.is_file())
        return {str(path.relative_to(self.path)): [path.stat().st_size, path.stat().st_mtime_ns] for path in files}

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return int(self.config.get("num_key_value_heads") or self.config["num_attention_heads"])

    def kv_bytes_per_token(self, bytes_per_value: int, *, ranks: int = 1) -> int:
        """Bytes of one token in a rank's cache of keys and values; each tensor-parallel rank has one head at least."""
        size = self.config.get("head_dim") or self.config["hidden_size"] // self.config["num_attention_heads"]
        return int(2 * self.config["num_hidden_layers"] * max(1, self.kv_heads // ranks) * size * bytes_per_value)


def check_folder(
    path: Path,
    *,
    dialect: str | None = None,
    name: str | None = None,
    weights: bool = True,
    repository: str | None = None,
) -> ModelFolder:
    """The model in a folder. Without `weights`, it needs neither these nor a tokenizer.

    `dialect` and `name` replace the folder's. Raises `UserError` for a folder that lacks a file, or has no model
    that calls tools in a known way.
    """
    check_no_links(path)
    config = read_json(path / "config.json")
    kind = str(config.get("model_type"))
    if dialect is None:
        own = config.get(DIALECT)
        dialect = _guess_dialect(path, kind, name or "") if own is None else str(own)
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


def _guess_dialect(path: Path, kind: str, name: str) -> str | None:
    """The dialect by the model's names, its chat template, or its architecture."""
    if _TOOLACE in path.resolve().name.lower() or _TOOLACE in name.lower():
        return _TOOLACE
    if kind not in _DIALECTS:
        return None
    return "qwen" if "<tool_call>" in template_of(path) else _DIALECTS[kind]


def has_tokenizer(path: Path) -> bool:
    return any((path / file).is_file() for file in _TOKENIZERS)


def template_files(path: Path) -> list[Path]:
    """The folder's own files of chat templates: the default one and named ones, as Transformers reads them."""
    files = [path / "chat_template.jinja", *sorted((path / "additional_chat_templates").glob("*.jinja"))]
    return [file for file in files if file.is_file()]


def template_of(path: Path) -> str:
    """The folder's chat templates, from their own files or the tokenizer's config; empty if it has none."""
    if files := template_files(path):
        return "\n".join(read_text(followed(file), "model") for file in files)
    config = path / "tokenizer_config.json"
    return str(read_json(config).get("chat_template", "")) if config.is_file() else ""


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file of a model folder. Raises `UserError` if there is none."""
    if not path.is_file():
        raise UserError(f"model: {path.parent} has no {path.name}.")
    return read_json_object(followed(path), "model", MAX_BYTES)


def check_weights(path: Path) -> None:
    """Raises `UserError` unless the folder has all weights of one model, and nothing that loaders read differently."""
    from safetensors import SafetensorError, safe_open

    files = {file.name for file in path.glob("*.safetensors")}
    if (path / "adapter_config.json").exists():
        raise UserError(f"model: {path} holds an adapter; give the model, and the adapter with --adapter.")
    if (path / "model.safetensors.index.json").is_file():
        places = read_json(path / "model.safetensors.index.json").get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
            raise UserError(f"model: {path / 'model.safetensors.index.json'} has no weight_map from tensors to files.")
        needed = set(places.values())
    else:
        needed = {"model.safetensors"}
        if not needed & files:
            raise UserError(
                f"model: {path} has no weights; model.safetensors, or parts of it with an index, are needed."
            )
    if missing := sorted(needed - files):
        raise UserError(f"model: {path} lacks {len(missing)} of {len(needed)} weight files, first {missing[0]}.")
    if stray := sorted(files - needed):
        raise UserError(f"model: {path / stray[0]} is no part of the model, and some loaders read it; remove it.")
    tensors: dict[str, Path] = {}
    for file in sorted(files):
        try:
            with safe_open(path / file, framework="np") as weights:  # without PyTorch, as only the header is read
                tensors |= dict.fromkeys(weights.keys(), path / file)
        except (SafetensorError, OSError) as error:
            raise UserError(f"model: {path / file} cannot be read ({error}); copy it again.") from error
    _check_tied(path, tensors)


_OUTPUT, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


def _check_tied(path: Path, tensors: Mapping[str, Path]) -> None:
    """Raises `UserError` for an output layer that differs from the embedding although the config ties them."""
    if not {_OUTPUT, _EMBEDDING} <= tensors.keys() or not read_json(path / "config.json").get("tie_word_embeddings"):
        return
    from safetensors import safe_open

    values: list[Any] = []
    for name in (_OUTPUT, _EMBEDDING):
        with safe_open(tensors[name], framework="pt") as file:
            values.append(file.get_tensor(name))
    if not bool((values[0] == values[1]).all()):
        raise UserError(
            f"model: {path} has an {_OUTPUT} that differs from {_EMBEDDING}, and tie_word_embeddings in its "
            "config.json, which only some loaders follow; set it to false, or remove the tensor."
        )
