"""Presets, files and words: which wins, what is read from them, and what is said where they are wrong."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from huggingface_hub.errors import LocalEntryNotFoundError

from envs.bfcl.splits import get_split
from policies import tiny
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.config.presets import DEFAULT
from seal_ray.config.schema import (
    CuratorSection,
    EngineSection,
    EnvironmentSection,
    EvaluationSection,
    GuidingCuratorSection,
    LearnersSection,
    ReweightingSection,
    SolverSection,
    TrainingSection,
)
from seal_ray.report.files import RunFolder
from tests.refusal import refusal

REAL_MODELS = ("qwen2.5-3b", "qwen2.5-7b", "toolace-2-8b")
TABLE_3 = {
    # method: whether the interface is adapted, whether advantages are weighted, whether both follow the profile
    "vanilla": (False, False, False),
    "wo-environment": (False, True, True),
    "wo-reweighting": (True, False, True),
    "wo-closed-loop": (True, True, False),
    "seal": (True, True, True),
}
"""The trained rows of SEAL's Table 3."""
PAIRS = {"pairs": True, "plain_share": 0.0, "plain_share_end": None}
LEARNING = {"kind": "llm", "trainable": True, **PAIRS, "reward": "gain", "pick": "first", "allocation": "thompson"}
ARMS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    # method: settings of its curator, and its other settings that are not those of vanilla
    "vanilla": ({"kind": "none"}, {}),
    "progress-reward": ({"kind": "none"}, {"environment.reward": "progress"}),
    "fixed": ({"kind": "fixed", **PAIRS}, {}),
    "placebo": ({"kind": "placebo", **PAIRS}, {}),
    "rules": ({"kind": "rules", **PAIRS}, {}),
    "llm-frozen": ({**LEARNING, "trainable": False}, {}),
    "coevolved": (LEARNING, {}),
    "llm-frozen-probed": ({**LEARNING, "trainable": False, "probe_points": 32}, {}),
    "coevolved-probed": ({**LEARNING, "probe_points": 32}, {}),
    "coevolved-varied": ({**LEARNING, "pick": "varied", "allocation": "by_category"}, {}),
    "coevolved-unpaired": ({**LEARNING, "pairs": False, "plain_share": 0.5}, {}),
    "coevolved-sqrt": (LEARNING, {"training.off_policy_weight": "sqrt"}),
    "coevolved-truncated": (LEARNING, {"training.off_policy_weight": "truncated"}),
    "llm-shown-unweighted": ({**LEARNING, "pairs": False}, {"training.view": "shown"}),
}
"""The arms of a comparison of curators."""
TASK_WRITERS = {
    # method: kind of its task writer, whether that learns, kind of its curator
    "static-tasks": ("static", None, "none"),
    "random-tasks": ("random", None, "none"),
    "genenv": ("llm", True, "none"),
    "genenv-frozen": ("llm", False, "none"),
    "genenv-placebo": ("shuffled", None, "none"),
    "seal-genenv": ("llm", True, "llm"),
}


def file_with(folder: Path, text: str) -> Path:
    file = folder / "settings.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("method", ARMS)
def test_arms_of_a_comparison_differ_in_the_curator_and_what_is_said(method: str) -> None:
    curator, changes = ARMS[method]
    plain, settings = make_config(["vanilla"]).to_sections(), make_config([method]).to_sections()
    assert settings["reweighting"]["mode"] == "none"
    assert settings["curator"].items() >= curator.items()
    assert changes == {
        f"{section}.{key}": value
        for section, values in settings.items()
        if section != "curator"
        for key, value in values.items()
        if value != plain[section][key]
    }


@pytest.mark.parametrize("method", TASK_WRITERS)
def test_methods_in_which_tasks_are_written(method: str) -> None:
    kind, trainable, curator = TASK_WRITERS[method]
    plain, settings = make_config(["vanilla"]).to_sections(), make_config([method]).to_sections()
    assert settings["task_writer"]["kind"] == kind
    assert settings["task_writer"].get("trainable") == trainable
    assert settings["curator"]["kind"] == curator
    for each in (plain, settings):
        del each["task_writer"], each["curator"]
    assert settings == plain


@pytest.mark.parametrize("model", [DEFAULT, REAL_MODELS[0]])
@pytest.mark.parametrize("method", TABLE_3)
def test_a_method_on_a_model_is_its_row_of_table_3(method: str, model: str) -> None:
    config = make_config([method, model])
    interface, weighted, closed = TABLE_3[method]
    curator, weights = config.section(CuratorSection), config.section(ReweightingSection)
    assert (curator.kind != "none") is interface
    assert (weights.mode != "none") is weighted
    if interface:
        # Without the loop the rules still show their base interface, so that the loop is all that is missing.
        assert curator.kind == ("rules" if closed else "rules-static")
    if weighted:
        assert weights.mode == ("dynamic" if closed else "fixed")
        assert weights.rho == "paper"
    base = make_config([model]).to_sections()
    if isinstance(curator, GuidingCuratorSection):
        assert (curator.pairs, config.section(TrainingSection).view) == (False, "shown"), "as published"
    found = config.to_sections()
    base["training"].pop("view")
    found["training"].pop("view")
    assert {name for name, values in found.items() if values != base[name]} <= {"curator", "reweighting"}
    assert make_config([model, method]).to_sections() == config.to_sections(), "the order does not matter"


@pytest.mark.parametrize("name", REAL_MODELS)
def test_model_presets_have_the_papers_recipe(name: str) -> None:
    config = make_config([name])
    training, solver = config.section(TrainingSection), config.section(SolverSection)
    assert (training.lr, training.groups, training.group_size, training.minibatch_groups) == (1e-6, 32, 8, 8)
    assert (training.epochs, training.kl, training.grad_clip) == (1, 0.001, 1.0)
    assert (training.clip_low, training.clip_high, training.schedule) == (0.2, 0.2, "constant")
    assert (solver.prompt, solver.response, solver.context, solver.steps) == (8192, 4096, 16_384, 20)
    assert (solver.temperature, solver.lora_rank) == (1.0, 0), "full fine-tuning"
    evaluation, environment = config.section(EvaluationSection), config.section(EnvironmentSection)
    assert evaluation.interval == 10
    assert (environment.source, environment.split_scheme, environment.reward) == ("bfcl", "scenario", "success")
    learners, engine = config.section(LearnersSection), config.section(EngineSection)
    assert (learners.num_learners, learners.fsdp, engine.num_engines) == (8, True, 8)
    assert learners.num_gpus_per_learner + engine.num_gpus_per_engine == 1.0, "8 GPUs, an engine and a learner on each"
    tasks = len(get_split("scenario").train)
    assert training.rounds == math.ceil(6 * tasks / training.groups), "6 epochs"
    assert config.section(ReweightingSection) == ReweightingSection(mode="dynamic")


@pytest.mark.parametrize("name", REAL_MODELS[:1])
def test_a_model_that_is_not_there_is_said_in_one_sentence(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = make_config([name])
    model = config.section(SolverSection).model

    def not_there(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("nowhere")

    monkeypatch.setattr("huggingface_hub.snapshot_download", not_there)
    said = refusal(config.validate)
    assert said.startswith(f"model: {model} is no folder here, and the hub did not give it (it is not in")
    assert f"`hf download {model}`" in said


@pytest.mark.parametrize("method", TABLE_3)
def test_what_runs_on_the_shipped_model_is_valid(method: str) -> None:
    make_config([method]).validate()


def test_later_layers_win(tmp_path: Path) -> None:
    file = file_with(tmp_path, "training: {rounds: 11, groups: 13, minibatch_groups: 1}\ncurator: {kind: fixed}")
    config = make_config(["vanilla"], file=file, overrides=["training.groups=17", "training.groups=19"])
    training = config.section(TrainingSection)
    assert (training.rounds, training.groups) == (11, 19)
    assert config.section(CuratorSection).kind == "fixed"
    assert config.section(ReweightingSection).mode == "none"
    assert config.section(SolverSection).model == tiny.NAME


@pytest.mark.parametrize(
    ("word", "section", "value"),
    [
        ("training.lr=1e-6", "training", 1e-6),
        (" training.rounds = 3", "training", 3),
        ("training.importance_cap=null", "training", None),
        ("learners.fsdp=true", "learners", True),
        ("environment.categories=[base, miss_func]", "environment", ["base", "miss_func"]),
        ("solver.model=1e5", "solver", "1e5"),
        ("solver.model=007", "solver", "007"),
        ("solver.model=a=b", "solver", "a=b"),
        ("solver.dialect=null", "solver", None),
        ("evaluation.split=on", "evaluation", "on"),
    ],
)
def test_words_are_read_as_what_the_setting_takes(word: str, section: str, value: Any) -> None:
    found = make_config(overrides=[word]).to_sections()[section]
    assert found[word.partition("=")[0].strip().partition(".")[2]] == value


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        (
            "training.rounds",
            "'training.rounds' is no setting; write section.key=value, for instance training.rounds=10.",
        ),
        ("rounds=3", "'rounds=3' is no setting; did you mean training.rounds?"),
        (".", "'.' is no setting; to resume the run in that folder, write --resume .."),
        (
            "training.rounds=[1",
            "training.rounds: '[1' cannot be read as YAML (line 1: expected ',' or ']', but got '<stream end>').",
        ),
        ("training.rounds.x=3", "config key of training: 'rounds.x' is not known; did you mean 'rounds'?"),
    ],
)
def test_words_that_are_no_settings(word: str, sentence: str) -> None:
    assert refusal(make_config, overrides=[word]) == sentence


def test_a_preset_of_ones_own_can_be_like_one_of_the_package(tmp_path: Path) -> None:
    own = file_with(tmp_path, "{kind: method, like: coevolved, about: Slow., sections: {curator: {update_every: 5}}}")
    found, like = make_config([str(own)]).to_sections(), make_config(["coevolved"]).to_sections()
    assert found["curator"] == {**like["curator"], "update_every": 5}
    assert {**found, "curator": None} == {**like, "curator": None}
    for wrong in ("tiny", "coevolvd", str(own), "null"):
        own.write_text(f"kind: method\nlike: {wrong}\nabout: Slow.\nsections: {{}}\n", "utf-8")
        assert re.search(r"like: .* is not known", refusal(make_config, [str(own)]))


@pytest.mark.parametrize(
    ("presets", "sentence"),
    [
        (["tny"], "preset: 'tny' is not known; did you mean 'tiny'?"),
        (["tiny", "qwen2.5-7b"], "preset: tiny and qwen2.5-7b are both model presets; give one of them."),
        (["seal", "vanilla"], "preset: seal and vanilla are both method presets; give one of them."),
    ],
)
def test_presets_that_cannot_be(presets: list[str], sentence: str) -> None:
    assert refusal(make_config, presets) == sentence
    assert "is not known" in refusal(make_config, [f"../presets/{DEFAULT}"])


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "config: {file} holds no sections; write them as the presets do, key: value under each."),
        ("training: 3", "config: {file}: training: 3 is no section; write key: value under it."),
        ("training:", "config: {file}: training: None is no section; write key: value under it."),
        ("trainin: {rounds: 3}", "config: {file}: section: 'trainin' is not known; did you mean 'training'?"),
        ("training: {round: 3}", "config key of training: 'round' is not known; did you mean 'rounds'?"),
        (
            "training: [",
            "config: {file} is not valid YAML (line 1: expected the node content, but found '<stream end>').",
        ),
        (
            "training: {rounds: 3}\ntraining: {groups: 3}",
            "config: {file} is not valid YAML (line 2: 'training' is given twice).",
        ),
    ],
)
def test_files_that_are_no_configs(text: str, sentence: str, tmp_path: Path) -> None:
    file = file_with(tmp_path, text)
    assert refusal(make_config, file=file) == sentence.format(file=file)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x80")
    for path, reason in (
        (tmp_path / "none.yaml", "No such file or directory"),
        (tmp_path, "Is a directory"),
        (binary, "it is no text"),
    ):
        assert refusal(make_config, file=path) == f"config: {path} cannot be read ({reason})."


def test_the_seed_is_the_arguments_then_the_files_then_0(tmp_path: Path) -> None:
    file = file_with(tmp_path, "seed: 7\ntraining: {rounds: 3}")
    assert make_config().seed == 0
    assert make_config(seed=5).seed == 5
    assert make_config(file=file).seed == 7
    assert make_config(file=file, seed=0).seed == 0
    assert make_config(file=file).section(TrainingSection).rounds == 3


@pytest.mark.parametrize("seed", ["x", "-1", "1.5", "true", "1000000"])
def test_a_seed_is_a_whole_number(seed: str, tmp_path: Path) -> None:
    said = refusal(make_config(file=file_with(tmp_path, f"seed: {seed}")).validate)
    assert re.fullmatch(r"seed: .* does not fit; it must be a whole number from 0 to 999999\.", said)


def test_the_config_of_a_run_is_a_config_file(tmp_path: Path) -> None:
    words = ["training.lr=1e-7", "solver.model=1e5", "training.importance_cap=null", "environment.categories=[base]"]
    config: SealConfig = make_config(["wo-environment"], overrides=words, seed=3)
    folder = RunFolder(tmp_path / "run")
    folder.write_config({"seed": config.seed, **config.to_sections()})
    again = make_config(file=folder.config)
    assert again.to_sections() == config.to_sections()
    assert again.seed == 3
    assert yaml.safe_load(folder.config.read_text())["training"]["lr"] == 1e-7


def test_what_a_preset_sets_for_another_kind_is_left_out() -> None:
    """tiny sets the pairs and the model of a curator; the curator none has neither."""
    assert make_config(["vanilla"]).to_sections()["curator"] == {"kind": "none", "update_every": 2}
    assert make_config(overrides=["curator.kind=placebo"]).to_sections()["curator"]["pairs"] is True
    said = refusal(make_config, ["vanilla"], overrides=["curator.plain_share=0.7"])
    assert said.startswith("curator.plain_share: curator.kind=none does not have it")
