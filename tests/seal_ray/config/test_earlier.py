"""Settings of earlier versions: what replaces each is said in one sentence, and the config of an earlier run loads."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from envs.errors import UserError
from envs.trusting import restricted
from seal_ray.algorithm.config import SealConfig, make_config
from seal_ray.config.earlier import REPLACED, converted
from seal_ray.config.presets import read_settings
from seal_ray.config.schema import KINDS, SECTIONS
from seal_ray.config.sections import check_key, fields_of, make_section
from tests.refusal import refusal

OLD_RUN: dict[str, Any] = {
    "seed": 3,
    "environment": {
        "source": "bfcl",
        "split": "train",
        "division": "category",
        "categories": ["base", "miss_func", "miss_param", "long_context"],
    },
    "curator": {"kind": "coevolved", "update_every": 2},
    "writer": {"kind": "learning", "reward": "probe"},
    "diagnosis": {"trajectories_kept": 5},
    "training": {
        "fill": "resample",
        "group_floor": 0.75,
        "anchor_weight": "shaped",
        "baseline": "leave-one-out",
        "advantage": "dr-grpo",
        "dual_clip": 3.0,  # there is none now, and the run's is kept
    },
    "evaluation": {"split": "test"},
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_setting_that_is_gone_says_what_to_do_instead(name: str) -> None:
    section, _, key = name.partition(".")
    assert section not in SECTIONS or key not in fields_of(section)
    sentence = f"{name}: this setting of an earlier version is gone: {REPLACED[name]}."
    assert refusal(check_key, section, key) == sentence
    assert refusal(make_config, overrides=[f"{name}=1"]) == sentence
    assert refusal(make_section, section, {key: 1}) == sentence


def test_what_replaces_a_setting_exists() -> None:
    """Every section.key that a sentence names is a setting of this version."""
    names = {f"{section}.{key}" for section in SECTIONS for key in fields_of(section)}
    for sentence in REPLACED.values():
        for word in sentence.replace(",", " ").replace(";", " ").replace("=", " ").split():
            if word.partition(".")[0] in SECTIONS and "." in word:
                assert word in names, sentence


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("writer.kind=random", "writer.kind: the section is task_writer now; see docs/config.md."),
        (
            "curator.kind=coevolved",
            "curator.kind: coevolved is llm now; set curator.kind=llm and curator.trainable=true.",
        ),
    ],
)
def test_sections_and_kinds_that_are_gone(word: str, sentence: str) -> None:
    assert refusal(lambda: make_config(overrides=[word]).validate()) == sentence


def test_a_setting_that_is_gone_is_refused_in_every_way(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("environment: {division: category}\n", encoding="utf-8")
    preset = tmp_path / "mine.yaml"
    mine = {"kind": "model", "about": "Mine.", "sections": {"environment": {"division": "category"}}}
    preset.write_text(yaml.safe_dump(mine), encoding="utf-8")
    environment = SealConfig().environment
    for give in (lambda: make_config(file=file), lambda: make_config([str(preset)]), lambda: environment(division="x")):
        assert re.match(r".*environment\.division: .* set environment\.split_scheme", refusal(give))


def test_the_config_of_an_earlier_run_is_converted(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(OLD_RUN), encoding="utf-8")
    settings = read_settings(file)
    assert settings["environment"]["split_scheme"] == "category"
    assert settings["curator"] == {"kind": "llm", "trainable": True, "update_every": 2}
    assert settings["task_writer"] == {"kind": "llm", "trainable": True, "reward": "held_out_success"}
    expected = {
        "trajectories_kept": 5,
        "dynamic_sampling": True,
        "min_group_completion": 0.75,
        "off_policy_weight": "sqrt",
        "advantage": "rloo",
        "dual_clip": 3.0,
    }
    assert settings["training"].items() >= expected.items()
    assert not {"writer", "diagnosis"} & settings.keys()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("training: {group_floor: 3.0}", "training.min_group_completion: 3.0 does not fit"),
        ("curator: {kind: [llm]}", r"curator.kind: \['llm'\] does not fit"),
    ],
)
def test_wrong_values_of_a_run_are_refused(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=says):
        read_settings(file)


def test_a_config_of_this_version_is_not_changed() -> None:
    sections = make_config(overrides=["curator.kind=llm"]).to_sections()
    assert converted(sections) == sections


def test_reading_the_config_of_a_run_imports_nothing(tmp_path: Path) -> None:
    """The reports of another person's run are read in any process."""
    file = tmp_path / "config.yaml"
    for section in KINDS:
        file.write_text(f"{section}: {{kind: 'evil_module:Kind', update_every: 3}}\n", encoding="utf-8")
        assert read_settings(file)[section] == {"kind": "evil_module:Kind", "update_every": 3}
        file.write_text(f"{section}: {{kind: 'evil_module:Kind', update_every: 0}}\n", encoding="utf-8")
        with pytest.raises(UserError, match=rf"{section}.update_every: 0 does not fit"):
            read_settings(file)


def test_a_kind_that_a_file_names_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_curator.py").write_text(MY_CURATOR, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text("curator: {kind: 'my_curator:Mine'}\n", encoding="utf-8")
    with restricted([]), pytest.raises(UserError, match=r"brings code that would run \(my_curator:Mine\)"):
        make_config(file=file)
    assert "my_curator" not in sys.modules
    with restricted([], ask=lambda _: True):
        # Settings of the preset for a language model are left out: this kind has none of them.
        assert make_config(file=file).to_sections()["curator"]["kind"] == "my_curator:Mine"


MY_CURATOR = """
from policies.curator.fixed import NoCurator


class Mine(NoCurator):
    kind = "mine"
"""
