"""Sections: strict values, one sentence for those that do not fit, unions on kind, and the page that describes them."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any, get_args

import pytest

from envs.dialogue import Protocol
from envs.roles import CURATOR, SOLVER, TASK_WRITER
from policies.curator.base import CURATORS
from policies.engine.choice import DTYPES
from policies.engine.choice import KINDS as ENGINES
from policies.task_writer.base import TASK_WRITERS
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.config import reference
from seal_ray.config.resolve import ArmSpec
from seal_ray.config.schema import (
    KINDS,
    SECTIONS,
    EngineSection,
    EnvironmentSection,
    Section,
    TrainingSection,
)
from seal_ray.config.sections import allowed, check_key, fields_of, make_section, section_class
from seal_ray.grpo.losses import CISPOLoss, GRPOLoss
from tests.refusal import refusal


def test_three_agents_learn_each_with_its_own_settings() -> None:
    spec = make_config(["seal-genenv"]).spec
    assert list(spec.agents) == [SOLVER, CURATOR, TASK_WRITER]
    assert spec.learning_agents == (SOLVER, CURATOR, TASK_WRITER)
    assert [agent.host for agent in spec.agents.values()] == [SOLVER, CURATOR, TASK_WRITER]
    assert spec.num_engines == 3
    assert [agent.training.loss for agent in spec.agents.values()] == ["grpo", "grpo", "rwr"]
    writer = spec.agents[TASK_WRITER]
    assert (writer.model, writer.context, writer.steps, writer.temperature) == ("tiny-writer", 3072, 1, 1.0)
    assert (writer.training.lr, writer.training.schedule, writer.training.warm_up) == (2e-4, "constant", 0)
    assert writer.training.rounds == 16, "a gradient step in each window of two of 32 rounds"
    assert writer.training.gradient_steps == 16


@pytest.mark.parametrize("trainable", [True, False])
def test_with_adapters_an_agent_without_a_model_of_its_own_samples_on_the_solvers_engines(trainable: bool) -> None:
    words = ["solver.lora_rank=4", "task_writer.model=null", f"curator.trainable={str(trainable).lower()}"]
    spec = make_config(["seal-genenv"], overrides=words).spec
    assert {agent.host for agent in spec.agents.values()} == {SOLVER}
    assert spec.num_engines == 1
    assert spec.adapters_on(SOLVER) == 2 + trainable
    curator = spec.agents[CURATOR]
    assert (curator.has_adapter, curator.lora_rank, curator.lora_alpha) == (trainable, 4, 8)
    assert curator.owns_engines is False
    assert curator.context == min(make_config().spec.solver.context, 3072)
    own = make_config(["seal-genenv"], overrides=["solver.lora_rank=4"]).spec
    assert own.agents[TASK_WRITER].owns_engines
    assert (own.num_engines, own.adapters_on(SOLVER), own.adapters_on(TASK_WRITER)) == (2, 2, 1)


@pytest.mark.parametrize(
    ("word", "arms"),
    [
        ("curator.kind=none", ArmSpec()),
        ("curator.kind=rules", ArmSpec(pairs=True, plain_share=0.5, plain_share_end=1.0)),
        ("curator.kind=llm", ArmSpec(pairs=True, plain_share=0.5, plain_share_end=1.0, on_common_tasks=True)),
    ],
)
def test_how_groups_are_divided_between_arms(word: str, arms: ArmSpec) -> None:
    assert make_config(overrides=[word]).spec.arms == arms


def test_a_spec_cannot_be_changed_and_is_resolved_once() -> None:
    config = SealConfig().training(rounds=5)
    config.freeze()
    spec = config.spec
    assert config.spec is spec
    with pytest.raises(dataclasses.FrozenInstanceError):
        spec.seed = 1  # type: ignore[misc]
    changed = config.copy(copy_frozen=False).training(rounds=6)
    assert (changed.spec.training.rounds, spec.training.rounds) == (6, 5)


def test_an_actor_with_another_working_directory_finds_a_model_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("here/tiny", "here/weights", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    sent = pickle.dumps(make_config(overrides=["solver.model=weights", "curator.kind=llm", "curator.model=tiny"]))
    monkeypatch.chdir(tmp_path / "elsewhere")
    config = pickle.loads(sent)
    assert config.spec.agents["solver"].model == str(tmp_path / "here" / "weights")
    assert config.spec.agents["curator"].model == "tiny", "a folder does not hide a named model"
    assert config.spec.solver.model == "weights", "recipes of other machines must be equal"


@pytest.mark.parametrize(
    ("section", "key", "value", "sentence"),
    [
        ("training", "group_size", 1, "training.group_size: 1 does not fit; it must be a whole number of at least 2."),
        ("training", "rounds", "10", "training.rounds: '10' does not fit; it must be a whole number of at least 1."),
        ("training", "rounds", 1.5, "training.rounds: 1.5 does not fit; it must be a whole number of at least 1."),
        ("training", "rounds", True, "training.rounds: True does not fit; it must be a whole number of at least 1."),
        ("training", "lr", float("nan"), "training.lr: nan does not fit; it must be a finite number of at least 0."),
        ("training", "grad_clip", 0, "training.grad_clip: 0 does not fit; it must be a number above 0."),
        (
            *("training", "importance_cap", 0),
            "training.importance_cap: 0 does not fit; it must be a number above 0, or None (null in YAML).",
        ),
        ("training", "schedule", "cosin", "training.schedule: 'cosin' is not known; did you mean 'cosine'?"),
        ("curator", "plain_share", 2, "curator.plain_share: 2 does not fit; it must be a number from 0 to 1."),
        ("solver", "lora_rank", 513, "solver.lora_rank: 513 does not fit; it must be a whole number from 0 to 512."),
        ("engine", "kind", "x", "engine.kind: 'x' is not known; allowed are auto, vllm, transformers."),
        ("engine", "kind", 3, "engine.kind: 3 does not fit; it must be auto, vllm or transformers."),
        ("solver", "dialect", 3, "solver.dialect: 3 does not fit; it must be text, or None (null in YAML)."),
        ("learners", "fsdp", "yes", "learners.fsdp: 'yes' does not fit; it must be true or false."),
        (
            *("environment", "categories", "base"),
            "environment.categories: 'base' does not fit; it must be a list of one or more texts, or None (null in "
            "YAML).",
        ),
        ("evaluation", "suites", [1], "evaluation.suites: [1] does not fit; it must be a list of one or more texts."),
        ("curator", "kind", 3, "curator.kind: 3 does not fit; it must be text."),
        ("curator", "kind", "llmm", "curator.kind: 'llmm' is not known; did you mean 'llm'?"),
        ("curator", "played", 2, "curator.played: curator.kind=rules does not have it; llm does."),
    ],
)
def test_a_value_that_does_not_fit_gets_one_plain_sentence(section: str, key: str, value: Any, sentence: str) -> None:
    assert refusal(make_section, section, {key: value}) == sentence


def test_long_values_are_cut() -> None:
    assert len(refusal(make_section, "training", {"rounds": "x" * 10_000})) < 200


@pytest.mark.parametrize(
    ("section", "key", "sentence"),
    [
        ("training", "group_sise", "config key of training: 'group_sise' is not known; did you mean 'group_size'"),
        ("trainin", "rounds", "config section: 'trainin' is not known; did you mean 'training'?"),
        ("training", "temperature", "training.temperature: there is no such key; did you mean solver.temperature?"),
        ("evaluation", "interface", "evaluation.interface: evaluation always plays the plain interface"),
    ],
)
def test_an_unknown_key_gets_the_nearest_right_one(section: str, key: str, sentence: str) -> None:
    assert refusal(check_key, section, key).startswith(sentence)
    assert sentence in refusal(make_section, section, {key: 1})


@pytest.mark.parametrize(("name", "kind"), [(name, kind) for name in SECTIONS for kind in KINDS.get(name, [None])])
def test_every_section_has_defaults_that_it_takes_and_describes_each_setting(name: str, kind: str | None) -> None:
    section = section_class(name, kind)
    values = section().model_dump() | ({} if kind is None else {"kind": kind})
    made = make_section(name, values)
    assert type(made) is section
    assert made == make_section(name, made.model_dump(mode="json"))
    assert section.__doc__
    for key, field in section.model_fields.items():
        assert field.description, key
        assert field.description.rstrip().endswith("."), key
        assert allowed(field), key


def test_choices_are_those_of_the_code_that_reads_them() -> None:
    def choices(kind: type[Section], key: str) -> set[str]:
        return set(get_args(kind.model_fields[key].annotation))

    assert choices(EnvironmentSection, "protocol") == {str(protocol) for protocol in Protocol}
    assert choices(EngineSection, "dtype") == set(DTYPES)
    assert choices(EngineSection, "kind") == {"auto", *ENGINES}
    assert set(KINDS["curator"]) == set(CURATORS.built_in)
    assert set(KINDS["task_writer"]) == {"none", *TASK_WRITERS.built_in}
    training = TrainingSection()
    for kind in (GRPOLoss, CISPOLoss):
        for key, value in kind.Settings():
            assert getattr(training, key, value) == value


def test_the_page_of_settings_is_up_to_date() -> None:
    text = reference.settings_as_markdown()
    assert reference.PATH.read_text(encoding="utf-8") == text, "run python -m seal_ray.config.reference"
    for section in SECTIONS:
        assert f"## {section}\n" in text
        for key in fields_of(section):
            assert f"\n| `{key}` | " in text
