"""`seal-ray export`: what it writes is the checkpoint's to the last bit, in forms that other libraries load."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml  # type: ignore[import-untyped]
from peft import PeftModel
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from policies.models import open_model
from seal_ray.algorithm.config import make_config
from seal_ray.report.files import RunFolder
from seal_ray.run import checkpoints
from seal_ray.run.export import model_card, release
from seal_ray.state import write_state
from seal_ray.training.weights import export_adapter, export_model
from tests.command_line import RunMain
from tests.policies.chat_models import random_chat_model
from tests.policies.models import load, load_adapted, random_adapter
from tests.readme import example
from tests.refusal import refusal

TOKENS = torch.tensor([[5, 6, 7, 8, 9, 300]])
METRICS = (
    {"round": 0, "evaluation/success": 0.25, "evaluation/success/base": 0.5, "evaluation/dialogues": 40},
    {"round": 2, "evaluation/success": 0.75, "evaluation/success/base": 1.0, "evaluation/dialogues": 40},
    {"round": 4, "evaluation/success": 0.0, "evaluation/success/base": 0.0, "evaluation/dialogues": 40},
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = random_chat_model(tmp_path_factory.mktemp("models") / "random-qwen", "qwen", context=512)
    GenerationConfig(eos_token_id=2, temperature=0.7, do_sample=True).save_pretrained(folder)
    named = folder / "additional_chat_templates" / "tool_use.jinja"
    named.parent.mkdir()
    named.write_text("{{ tools }}<|im_end|>", "utf-8")
    for stray in ("trainer_state.json", "pytorch_model.bin.index.json", "recipe.json"):
        (folder / stray).write_text("{}", "utf-8")
    return folder


def test_a_trained_model_says_how_it_calls_whatever_its_folder_is_called(base: Path, tmp_path: Path) -> None:
    for name in ("toolace", "qwen"):
        opened = open_model(str(base), dialect=name)
        export_model(opened, load_file(base / "model.safetensors"), tmp_path / name / "model", dtype="float32")
        written = open_model(str(tmp_path / name / "model"))
        assert written.dialect.name == name
        assert open_model(str(written.path), dialect="llama3_json").dialect.name == "llama3_json"


def run_of(folder: Path, base: Path, *, rank: int) -> Path:
    """A run's folder with one checkpoint, after round 3, as training writes it."""
    config = {
        "seed": 7,
        "environment": {"source": "toolworld", "split": "train", "categories": ["base"]},
        "solver": {"model": str(base), "lora_rank": rank, "lora_alpha": 12},
        "training": {"rounds": 5, "lr": 0.0002},
        "evaluation": {"split": "dev", "source": None},
    }
    checkpoint = folder / "checkpoints" / "round_000003"
    checkpoint.mkdir(parents=True)
    (folder / "logs").mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump(config), "utf-8")
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in METRICS), "utf-8")
    opened = open_model(str(base))
    if rank:
        tensors = random_adapter(base, seed=3).tensors
        state = {
            f"language_model.{name.replace('.weight', '.default.weight')}": tensor for name, tensor in tensors.items()
        }
        export_adapter(opened, state, checkpoint / "adapter", rank=rank, alpha=12)
    else:
        torch.manual_seed(4)
        state = {
            f"language_model.{name}": tensor + 0.1 * torch.randn_like(tensor)
            for name, tensor in load(base).state_dict().items()
        }
    export_model(opened, state, checkpoint / "model", dtype="float32", rank=rank, alpha=12)
    return folder


@pytest.fixture(scope="module")
def full(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("runs") / "full", base, rank=0)


@pytest.fixture(scope="module")
def lora(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("runs") / "lora", base, rank=8)


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    found: torch.Tensor = model.eval()(TOKENS).logits
    return found


def auto(folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)


@pytest.mark.parametrize("kind", ["full", "lora"])
def test_an_exported_model_is_the_checkpoint_s(
    kind: str, base: Path, tmp_path: Path, request: pytest.FixtureRequest, run_main: RunMain
) -> None:
    run, out = request.getfixturevalue(kind), tmp_path / "out"
    but = {"runs/NAME": str(run), "merged": str(out)}
    command = example("seal-ray", "export", "runs/NAME", "--out", "merged", "--merge", but=but)
    said = run_main(*command)
    assert said == f"model of round 3 in {out}\n"
    stored = run / "checkpoints" / "round_000003" / "model"
    assert torch.equal(logits(auto(out)), logits(auto(stored)))
    assert not torch.allclose(logits(auto(out)), logits(auto(base)), atol=1e-2)
    found, wanted = load_file(out / "model.safetensors"), load_file(stored / "model.safetensors")
    assert {name: tensor.dtype for name, tensor in found.items()} == {name: each.dtype for name, each in wanted.items()}
    assert all(torch.equal(found[name], tensor) for name, tensor in wanted.items())
    assert open_model(str(out)).context == 512
    assert GenerationConfig.from_pretrained(out).temperature == 0.7
    assert AutoTokenizer.from_pretrained(out).chat_template == AutoTokenizer.from_pretrained(base).chat_template
    assert not {path.name for path in out.iterdir()} & {"trainer_state.json", "pytorch_model.bin.index.json"}


def test_an_exported_model_has_the_names_of_transformers_4(tmp_path: Path) -> None:
    """Version 4.57 has neither `TokenizersBackend` nor a list of extra tokens nor `rope_parameters`."""
    tiny = open_model("tiny")
    export_model(tiny, load_file(tiny.path / "model.safetensors"), tmp_path / "model", dtype="bfloat16")
    tokenizer = json.loads((tmp_path / "model" / "tokenizer_config.json").read_text("utf-8"))
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert "extra_special_tokens" not in tokenizer
    assert json.loads((tmp_path / "model" / "config.json").read_text("utf-8"))["rope_theta"] == 1_000_000
    before, after = (AutoTokenizer.from_pretrained(folder) for folder in (tiny.path, tmp_path / "model"))
    assert after.get_vocab() == before.get_vocab()
    assert after.all_special_ids == before.all_special_ids
    assert torch.equal(logits(auto(tmp_path / "model")), logits(auto(tiny.path)))


def test_an_exported_adapter_is_the_checkpoint_s(lora: Path, base: Path, tmp_path: Path, run_main: RunMain) -> None:
    out = tmp_path / "out"
    but = {"runs/NAME": str(lora), "my-solver": str(out)}
    command = example("seal-ray", "export", "runs/NAME", "--out", "my-solver", but=but)
    said = run_main(*command)
    assert said == f"adapter of round 3 in {out}\n"
    learnt = random_adapter(base, seed=3)
    found = load_file(out / "adapter_model.safetensors")
    assert found.keys() == learnt.tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in learnt.tensors.items())
    adapted = PeftModel.from_pretrained(auto(base), str(out))
    assert torch.equal(logits(adapted), logits(load_adapted(base, learnt)))
    assert not (out / "config.json").exists()
    assert AutoTokenizer.from_pretrained(out).chat_template == AutoTokenizer.from_pretrained(base).chat_template


def add_checkpoint(run: Path, number: int) -> Path:
    part = run / "checkpoints" / f"round_{number:06d}.part"
    shutil.copytree(run / "checkpoints" / "round_000003" / "model", part / "model")
    write_state(part / "algorithm" / "learner_group", {"optimizer": number})
    whole = checkpoints.keep(part, most=3)
    checkpoints.check_state(whole)
    checkpoints.remove_older_states(whole.parent)
    return whole


def test_an_older_checkpoint_is_exported_but_not_resumed(
    full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    run = tmp_path / "run"
    shutil.copytree(full, run)
    older = add_checkpoint(run, 4)
    assert (older / "algorithm" / "learner_group" / "state.json").is_file()
    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", killed)
        patched.setattr(os, "rmdir", killed)
        with pytest.raises(KeyboardInterrupt):
            add_checkpoint(run, 5)
    newer = checkpoints.newest(run)
    assert newer.name == "round_000005"
    refusal(checkpoints.check_state, older)
    newest = add_checkpoint(run, 6)
    assert sorted(path.name for path in newest.iterdir()) == ["algorithm", "model"]
    assert [path.name for path in (*older.iterdir(), *newer.iterdir())] == ["model", "model"]
    assert release(older, tmp_path / "out") == (4, False)
    model = older / "model" / "model.safetensors"
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == model.read_bytes()
    assert checkpoints.model_of(str(older)) == str(older / "model")

    shutil.rmtree(newest)
    RunFolder(run).write_config({"seed": 7, **make_config().to_sections()})
    said = run_main("train", "--resume", str(run), code=2)
    assert f"{newer} has a model but no optimizer state" in said
    assert f"solver.model={newer / 'model'}." in said


def killed(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_the_card_tells_data_recipe_results_and_limits(lora: Path, tmp_path: Path) -> None:
    release(lora, tmp_path / "out")
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert card.startswith("---\nlibrary_name: peft\n")
    for line in (
        *("trained from `random-qwen`", "## Data", "split `train`", "## Recipe", "| training.lr | 0.0002 |"),
        *("| rounds | 3 of 5 |", "| seed | 7 |", "## Results", "| category | before training | after round 2 |"),
        *("| all | 25.0 % | 75.0 % |", "| base | 50.0 % | 100.0 % |", "## Limits"),
    ):
        assert line in card, line
    assert str(lora.parent) not in card


@pytest.mark.parametrize("name", ["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-7B-Instruct@refs/pr/1"])
def test_a_model_of_a_hub_has_its_whole_name(name: str) -> None:
    card = model_card({"solver": {"model": name}}, [], name="out", rounds=3, adapter=True)
    assert 'from_pretrained("Qwen/Qwen2.5-7B-Instruct")' in card
    assert "`seal-ray serve Qwen/Qwen2.5-7B-Instruct --adapter FOLDER`" in card
    if "@" not in name:  # whose numbers come with the package
        assert open_model(name, weights=False).public_name == name


def test_what_cannot_be_exported_is_one_sentence_and_nothing_is_written(
    full: Path, lora: Path, tmp_path: Path, run_main: RunMain
) -> None:
    there, file = tmp_path / "there", tmp_path / "file"
    there.mkdir()
    file.write_text("text", "utf-8")
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "config.yaml").write_text("seed: 1\n", "utf-8")
    older = tmp_path / "older"
    shutil.copytree(lora, older)
    shutil.rmtree(older / "checkpoints" / "round_000003" / "adapter")
    before = sorted(tmp_path.rglob("*"))
    for run, out, sentence in (
        (there, tmp_path / "out", "is no run"),
        (bare, tmp_path / "out", "has no checkpoint"),
        (full, there, "exists; give a new folder"),
        (full, file, "exists; give a new folder"),
        (full, file / "out", "cannot be written"),
        (older, tmp_path / "out", "has no adapter; gi"),
    ):
        said = run_main("export", str(run), "--out", str(out), code=2)
        assert sentence in said
    assert sorted(tmp_path.rglob("*")) == before
