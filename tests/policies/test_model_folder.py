"""A model folder that cannot be used is told so in one sentence."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from envs.errors import UserError
from policies.model_folder import open_model
from policies.prompting import ChatFormat
from tests.policies.chat_models import random_chat_model


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_chat_model(tmp_path_factory.mktemp("model") / "qwen", "qwen")


def edited(**changes: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        config.update(changes)
        (folder / "config.json").write_text(json.dumps(config))

    return edit


def without(*names: str) -> Callable[[Path], None]:
    def remove(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return remove


def written(name: str, text: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_text(text)

    return write


BROKEN = {
    "no config": (without("config.json"), "has no config.json"),
    "config is no JSON": (written("config.json", "{"), "is not valid JSON"),
    "config is a list": (written("config.json", "[]"), "is not a JSON object"),
    "no weights": (without("model.safetensors"), "has no weights"),
    "cut weights": (lambda folder: _cut(folder / "model.safetensors"), "cannot be read"),
    "missing shard": (
        written(
            "model.safetensors.index.json", json.dumps({"weight_map": {"a": "model.safetensors", "b": "2.safetensors"}})
        ),
        "lacks 1 of 2 weight files, first 2.safetensors",
    ),
    "no tokenizer": (without("tokenizer.json"), "has no tokenizer"),
    "no context": (edited(max_position_embeddings=None), "does not say max_position_embeddings"),
    "another family": (edited(model_type="gpt2"), "is of type 'gpt2', not one of qwen2, qwen3, llama"),
}


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_missing_is_named(name: str, whole: Path, tmp_path: Path) -> None:
    spoil, sentence = BROKEN[name]
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    open_model(str(folder))
    spoil(folder)
    with pytest.raises(UserError, match=sentence) as raised:
        open_model(str(folder))
    assert "\n" not in str(raised.value)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder"):
        open_model(str(tmp_path / "nowhere"))


def test_no_chat_template_and_no_readable_tokenizer(whole: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    dialect = open_model(str(folder)).dialect
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(UserError, match="has no chat template"):
        ChatFormat.load(folder, dialect)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match=r"the tokenizer of .* cannot be loaded"):
        ChatFormat.load(folder, dialect)


def test_the_dialect_follows_the_family_the_name_or_the_user(whole: Path, tmp_path: Path) -> None:
    assert open_model(str(whole)).dialect.name == "qwen"
    llama = random_chat_model(tmp_path / "some-llama", "llama3_json")
    assert open_model(str(llama)).dialect.name == "llama3_json"
    named = llama.rename(tmp_path / "ToolACE-2-Llama-3.1-8B")
    assert open_model(str(named)).dialect.name == "toolace"
    assert open_model(str(named), dialect="qwen").dialect.name == "qwen"
    with pytest.raises(UserError, match="dialect: 'klingon' is not known"):
        open_model(str(named), dialect="klingon")


def test_the_cache_of_a_token() -> None:
    """Keys and values of 4 layers with 2 heads of 64 in float32, for the shipped model."""
    model = open_model("tiny")
    config = model.config
    heads, size = config["num_key_value_heads"], config["hidden_size"] // config["num_attention_heads"]
    assert model.kv_bytes_per_token(4) == 2 * config["num_hidden_layers"] * heads * size * 4
    assert model.name == "tiny"
