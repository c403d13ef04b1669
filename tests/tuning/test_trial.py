"""A trial's settings: those of its file, and its own above them; and what it asks the cluster for."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from envs.errors import UserError
from seal_ray.algorithm.config import make_config
from tuning.trial import CONFIG, MAIN, RUN, SealTrial, trial_settings


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    config = make_config(["vanilla"], overrides=["engine.num_engines=2", "training.lr=0.5"])
    path.write_text(yaml.safe_dump({"seed": 4, **config.to_sections()}), encoding="utf-8")
    return path


def test_its_own_settings_win_over_the_files(file: Path) -> None:
    found = trial_settings({CONFIG: str(file), "lr": 0.25, "reweighting_alpha": 2.0, "__trial_info__": "kept"})
    assert (found["lr"], found["reweighting_alpha"], found["seed"]) == (0.25, 2.0, 4)
    assert (found["curator_kind"], found["training_rounds"]) == ("none", 32)
    assert found["__trial_info__"] == "kept"
    assert CONFIG not in found
    assert trial_settings({RUN: str(file.parent)})["lr"] == 0.5
    assert trial_settings({RUN: str(file.parent), "seed": 9})["seed"] == 9


def test_it_asks_for_what_a_run_needs(file: Path) -> None:
    asked = SealTrial.default_resource_request({CONFIG: str(file)}).required_resources
    assert asked["CPU"] == pytest.approx(1 + 0.4 + 2 * 0.4), "the main process, an env runner and two engines"
    less = SealTrial.default_resource_request({CONFIG: str(file), MAIN: 0.25})
    assert less.required_resources["CPU"] == pytest.approx(0.25 + 0.4 + 2 * 0.4)
    more = SealTrial.default_resource_request({CONFIG: str(file), "engine_num_engines": 4})
    assert more.required_resources["CPU"] == pytest.approx(1 + 0.4 + 4 * 0.4)
    none = SealTrial.default_resource_request({CONFIG: str(file), "engine_num_cpus_per_engine": 0.0})
    assert all(any(bundle.values()) for bundle in none.bundles), "Ray refuses empty bundles"


def test_an_unknown_setting_is_one_sentence(file: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'reweighting_alpha'"):
        SealTrial.default_resource_request({CONFIG: str(file), "reweighting_alpa": 1.0})
