"""Settings of runs: the config of an earlier version loads, and reading one imports nothing."""

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from envs.errors import UserError
from envs.trusting import restricted
from seal_ray.algorithm.config import make_config
from seal_ray.config.earlier import converted
from seal_ray.config.presets import read_settings
from seal_ray.config.schema import KINDS

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
