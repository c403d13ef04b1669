"""Trials: their settings and resources, the evaluation that they share, and what ends all of them at once."""

from pathlib import Path

import pytest
import ray
import yaml  # type: ignore[import-untyped]
from ray import tune
from ray.exceptions import OutOfMemoryError

from envs.errors import UserError
from seal_ray.algorithm.config import make_config
from seal_ray.report.files import TRIALS, RunFolder
from tests.tuning.comparison.folders import constant, drawn, play
from tuning.recipe import Sections
from tuning.record import mark_ended, neighbour_evaluation
from tuning.running import MemoryFault, check_fit, run_trials
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
    asked = SealTrial.default_resource_request({CONFIG: str(file)})
    assert asked.required_resources["CPU"] == pytest.approx(1 + 0.4 + 2 * 0.4), "main process, env runner, two engines"
    asked = SealTrial.default_resource_request({CONFIG: str(file), MAIN: 0.25, "engine_num_engines": 4})
    assert asked.required_resources["CPU"] == pytest.approx(0.25 + 0.4 + 4 * 0.4)
    none = SealTrial.default_resource_request({CONFIG: str(file), "engine_num_cpus_per_engine": 0.0})
    assert all(any(bundle.values()) for bundle in none.bundles), "Ray refuses empty bundles"


def test_an_unknown_setting_is_one_sentence(file: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'reweighting_alpha'"):
        SealTrial.default_resource_request({CONFIG: str(file), "reweighting_alpa": 1.0})


SOLVED = drawn({"base": 0.5}, 0)


def sections(*overrides: str) -> Sections:
    return make_config(["vanilla"], overrides=overrides).to_sections()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A run folder next to one without an evaluation and one that was evaluated before its training."""
    RunFolder(tmp_path / "trials" / "a-seed0").write_config(sections())
    RunFolder(tmp_path / "trials" / "b-seed0").write_config(sections())
    play(tmp_path, "b", 0, constant(0.5), solved=SOLVED)
    return RunFolder(tmp_path / "trials" / "c-seed0").path


def test_it_is_that_of_another_trial_without_what_is_no_number(own: Path) -> None:
    metrics = RunFolder(own.parent / "b-seed0").metrics
    metrics.replace([{**row, "evaluation/mine/rare": None} for row in metrics.rows()])
    found = neighbour_evaluation(own, sections("training.lr=0.5", "curator.kind=fixed"))
    assert found is not None
    evaluation, neighbour = found
    assert evaluation["suites"] == {"plain": SOLVED(0)}
    assert neighbour == own.parent / "b-seed0"
    assert set(evaluation["metrics"]) == {"evaluation/success", "evaluation/success/base"}


@pytest.mark.parametrize("override", ["solver.response=7", "evaluation.tasks=7", "engine.dtype=bfloat16"])
def test_another_evaluation_is_not_taken(own: Path, override: str) -> None:
    assert neighbour_evaluation(own, sections(override)) is None
    assert neighbour_evaluation(own.parent / "b-seed0", sections()) is None, "its own does not count"


def test_a_machine_without_memory_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tune's own message is the report of Ray's memory monitor, of some forty lines."""
    cause: Exception = OutOfMemoryError("3 worker(s) were killed")

    def fit(_: tune.Tuner) -> None:
        raise RuntimeError("Caught unexpected exception: 3 worker(s) were killed\nMemory on the node") from cause

    monkeypatch.setattr(tune.Tuner, "fit", fit)
    with pytest.raises(MemoryFault, match=r"ran out of memory.* resume with --resume") as caught:
        run_trials(tmp_path, {}, on_event=print, retries=0, checkpoint_every=1)
    assert "\n" not in str(caught.value)

    cause = ValueError("another")
    with pytest.raises(RuntimeError, match="Caught unexpected"):
        run_trials(tmp_path, {}, on_event=print, retries=0, checkpoint_every=1)


def test_trials_that_a_smaller_cluster_can_never_hold_are_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = RunFolder(tmp_path / TRIALS / "coevolved-seed0")
    folder.write_config({"seed": 0, **make_config(["coevolved"]).to_sections()})
    configs = {"an id": {RUN: str(folder.path), MAIN: 1.0}}
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 4.0})
    check_fit(configs)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    with pytest.raises(UserError, match=r"the trial coevolved-seed0 needs 2\.2 CPUs and the cluster has 2"):
        check_fit(configs)
    mark_ended(folder.path)
    check_fit(configs)
