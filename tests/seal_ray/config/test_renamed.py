"""Old names of settings still load: from files, words, code, Tune and stored configs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from envs.errors import UserError
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.config import sections
from seal_ray.config.sections import Environment, make_section
from seal_ray.run.release import model_card

OLD_RUN = {
    "seed": 3,
    "environment": {
        "source": "bfcl",
        "split": "train",
        "bfcl_split": "category",
        "categories": ["base", "miss_func", "miss_param", "long_context"],
    },
    "evaluation": {"split": "test"},
}


def division(config: SealConfig) -> str | None:
    return config.section(sections.Environment).division


def test_the_config_of_an_old_run_loads(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(OLD_RUN), encoding="utf-8")
    config = make_config(file=file)
    config.validate()
    assert (config.seed, division(config)) == (3, "category")
    assert list(config.to_sections()["environment"])[:4] == ["source", "split", "division", "categories"]
    assert config.to_sections()["environment"]["categories"] == OLD_RUN["environment"]["categories"]  # type: ignore[index]


def test_an_old_key_is_set_in_every_way(tmp_path: Path) -> None:
    assert division(make_config(overrides=["environment.bfcl_split=category"])) == "category"
    assert division(SealConfig().environment(bfcl_split="category")) == "category"
    assert division(SealConfig().update_from_dict({"environment_bfcl_split": "category"})) == "category"
    section = make_section("environment", {"bfcl_split": "category"})
    assert isinstance(section, Environment)
    assert section.division == "category"
    preset = tmp_path / "mine.yaml"
    mine = {"kind": "model", "about": "Mine.", "sections": {"environment": {"bfcl_split": 2024}}}
    preset.write_text(yaml.safe_dump(mine), encoding="utf-8")
    assert division(make_config([str(preset)])) == "2024"


def test_a_later_layer_wins_whichever_name_it_uses(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("environment: {division: category}\n", encoding="utf-8")
    assert division(make_config(file=file, overrides=["environment.bfcl_split=scenario"])) == "scenario"
    file.write_text("environment: {bfcl_split: category}\n", encoding="utf-8")
    assert division(make_config(file=file, overrides=["environment.division=scenario"])) == "scenario"


def test_a_setting_under_both_names_is_refused(tmp_path: Path) -> None:
    said = "environment.bfcl_split: this is the old name of environment.division; give one of them."
    file = tmp_path / "config.yaml"
    file.write_text("environment: {bfcl_split: category, division: scenario}\n", encoding="utf-8")
    for give in (
        lambda: make_config(file=file),
        lambda: SealConfig().environment(bfcl_split="category", division="scenario"),
        lambda: make_section("environment", {"division": "scenario", "bfcl_split": "category"}),
    ):
        with pytest.raises(UserError) as caught:
            give()
        assert str(caught.value) == said


def test_a_config_that_was_stored_under_old_names_is_read() -> None:
    config = SealConfig().environment(division="category")
    state = dict(vars(config))
    state["environment_bfcl_split"] = state.pop("environment_division")
    stored = SealConfig.__new__(SealConfig)
    vars(stored).update(state)
    assert division(pickle.loads(pickle.dumps(stored))) == "category"
    assert division(config.copy()) == "category"


def test_a_model_card_is_the_same_for_old_and_new_configs() -> None:
    new = {**OLD_RUN, "environment": {"source": "bfcl", "split": "train", "division": "category", "categories": None}}
    cards = {model_card(config, [], name="x", rounds=1, adapter=False) for config in (OLD_RUN, new)}
    assert len(cards) == 1
    assert (
        "multi-turn tasks of BFCL V3, split `train`, categories base, miss_func, miss_param, long_context."
        in cards.pop()
    )
