"""Sections: strict values, the one sentence for those that do not fit, and the page that describes them."""

from __future__ import annotations

import re
from typing import Any, get_args

import pytest
from seal_ray.grpo.losses.cispo import CISPOLoss
from seal_ray.grpo.losses.grpo import GRPOLoss
from seal_ray.grpo.rewards.progress import TurnShareReward

from envs.dialogue import Protocol
from envs.errors import UserError
from envs.interface.value import MAX_GUIDELINES
from envs.task import Category
from policies.curator.choice import CURATORS
from policies.curator.rules import RulesSettings
from policies.engine.choice import DTYPES
from policies.engine.choice import KINDS as ENGINES
from seal_ray.config import reference
from seal_ray.config.fields import allowed
from seal_ray.config.sections import (
    SECTIONS,
    Curator,
    Engine,
    Environment,
    Reweighting,
    Section,
    Training,
    check_key,
    make_section,
    section_name,
)
from seal_ray.grpo.reweighting import ReweightingSettings


@pytest.mark.parametrize(
    ("section", "key", "value", "sentence"),
    [
        ("training", "group_size", 1, "training.group_size: 1 does not fit; it must be a whole number of at least 2."),
        ("training", "fill", "resampel", "training.fill: 'resampel' is not known; did you mean 'resample'?"),
        ("training", "fill_limit", 0, "training.fill_limit: 0 does not fit; it must be a whole number of at least 1."),
        ("environment", "sampler", "x", "environment.sampler: 'x' is not known; allowed are uniform, success."),
        (
            *("environment", "sampler_floor", 0),
            "environment.sampler_floor: 0 does not fit; it must be a number above 0 and at most 1.",
        ),
        ("training", "rounds", "10", "training.rounds: '10' does not fit; it must be a whole number of at least 1."),
        ("training", "rounds", 1.5, "training.rounds: 1.5 does not fit; it must be a whole number of at least 1."),
        ("training", "rounds", True, "training.rounds: True does not fit; it must be a whole number of at least 1."),
        ("training", "rounds", None, "training.rounds: None does not fit; it must be a whole number of at least 1."),
        ("training", "lr", -1, "training.lr: -1 does not fit; it must be a number of at least 0."),
        ("training", "lr", float("nan"), "training.lr: nan does not fit; it must be a finite number of at least 0."),
        ("training", "grad_clip", 0, "training.grad_clip: 0 does not fit; it must be a number above 0."),
        (
            *("training", "dual_clip", 1),
            "training.dual_clip: 1 does not fit; it must be a number above 1, or None (null in YAML).",
        ),
        ("curator", "keep", 9, "curator.keep: 9 does not fit; it must be a whole number from 0 to 8."),
        ("curator", "plain_share", 2, "curator.plain_share: 2 does not fit; it must be a number from 0 to 1."),
        (
            *("engine", "gpu_memory_share", 0),
            "engine.gpu_memory_share: 0 does not fit; it must be a number above 0 and at most 1.",
        ),
        ("engine", "kind", "vlm", "engine.kind: 'vlm' is not known; did you mean 'vllm'?"),
        ("engine", "kind", "x", "engine.kind: 'x' is not known; allowed are auto, vllm, transformers."),
        ("engine", "kind", 3, "engine.kind: 3 does not fit; it must be auto, vllm or transformers."),
        ("solver", "model", None, "solver.model: None does not fit; it must be text."),
        ("solver", "dialect", 3, "solver.dialect: 3 does not fit; it must be text, or None (null in YAML)."),
        (
            "solver",
            "lora_targets",
            [1],
            "solver.lora_targets: [1] does not fit; it must be a list of one or more texts.",
        ),
        ("solver", "lora_targets", [], "solver.lora_targets: [] does not fit; it must be a list of one or more texts."),
        ("learners", "fsdp", "yes", "learners.fsdp: 'yes' does not fit; it must be true or false."),
        (
            *("environment", "categories", "base"),
            "environment.categories: 'base' does not fit; it must be a list of one or more texts, or None (null in "
            "YAML).",
        ),
        (
            *("reweighting", "overrides", {"pass": -1}),
            "reweighting.overrides.pass: -1 does not fit; it must be a number above 0.",
        ),
        ("reweighting", "overrides", {1: 2.0}, "reweighting.overrides: 1 does not fit; its keys must be text."),
        (
            *("reweighting", "overrides", 3),
            "reweighting.overrides: 3 does not fit; it must be a mapping from text to a number above 0.",
        ),
    ],
)
def test_a_value_that_does_not_fit_gets_one_plain_sentence(section: str, key: str, value: Any, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        make_section(section, {key: value})
    assert str(caught.value) == sentence


def test_long_values_are_cut() -> None:
    with pytest.raises(UserError) as caught:
        make_section("training", {"rounds": "x" * 10_000})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("section", "key", "sentence"),
    [
        ("training", "group_sise", "config key of training: 'group_sise' is not known; did you mean 'group_size'"),
        ("trainin", "rounds", "config section: 'trainin' is not known; did you mean 'training'?"),
        (
            *("training", "temperature"),
            "training.temperature: there is no such key; did you mean solver.temperature or curator.temperature or "
            "writer.temperature or evaluation.temperature?",
        ),
        ("diagnosis", "xyz", "config key of diagnosis: 'xyz' is not known; allowed are trajectories_kept."),
        (
            "evaluation",
            "interface",
            "evaluation.interface: evaluation always plays the plain interface",
        ),
        (
            "evaluation",
            "protocol",
            "evaluation.protocol: evaluation always plays the plain interface",
        ),
    ],
)
def test_an_unknown_key_is_told_the_nearest_right_one(section: str, key: str, sentence: str) -> None:
    with pytest.raises(UserError) as caught:
        check_key(section, key)
    assert str(caught.value).startswith(sentence)
    with pytest.raises(UserError, match=re.escape(sentence)):
        make_section(section, {key: 1})


def test_categories_are_read_by_name() -> None:
    section = make_section("environment", {"categories": ["base", Category.MISS_FUNC]})
    assert isinstance(section, Environment)
    assert section.categories == [Category.BASE, Category.MISS_FUNC]


@pytest.mark.parametrize("kind", SECTIONS.values(), ids=SECTIONS)
def test_every_section_holds_its_defaults_and_says_what_they_are(kind: type[Section]) -> None:
    name = section_name(kind)
    assert make_section(name, kind().model_dump()) == kind() == make_section(name, kind().model_dump(mode="json"))
    assert kind.__doc__
    for key, field in kind.model_fields.items():
        assert field.description, key
        assert field.description.rstrip().endswith("."), key
        assert allowed(field), key


def test_choices_are_those_of_the_floors_below() -> None:
    def choices(kind: type[Section], key: str) -> set[str]:
        return set(get_args(kind.model_fields[key].annotation))

    assert choices(Environment, "protocol") == {str(protocol) for protocol in Protocol}
    assert choices(Engine, "dtype") == set(DTYPES)
    assert choices(Engine, "kind") == {"auto", *ENGINES}
    assert Curator().kind in CURATORS.names()
    curator, rules = Curator(), RulesSettings()
    for key in ("min_count", "min_prevalence", "max_reward", "keep"):
        assert getattr(curator, key) == getattr(rules, key)
    assert make_section("curator", {"keep": MAX_GUIDELINES})
    training, reward = Training(), TurnShareReward.Settings()
    assert Environment().abstention_weight == reward.abstention_weight
    for kind in (GRPOLoss, CISPOLoss):
        for key, value in kind.Settings():
            assert getattr(training, key) == value
    weights, settings = Reweighting(), ReweightingSettings()
    for key in ("low", "high", "budget", "apply_to", "warm_up"):
        assert getattr(weights, key) == getattr(settings, key)


def test_the_page_of_settings_is_up_to_date() -> None:
    text = reference.settings_as_markdown()
    assert reference.PATH.read_text(encoding="utf-8") == text, "run python -m seal_ray.config.reference"
    for section, kind in SECTIONS.items():
        assert f"## {section}\n" in text
        for key in kind.model_fields:
            assert f"\n| `{key}` | " in text
