"""`seal-ray sweep` as a user meets it: one sentence for a mistake, plans, custom presets."""

from pathlib import Path
from typing import Any

import pytest
import ray
from ray import tune
from ray.tune.schedulers import PopulationBasedTraining
from ray.tune.schedulers.pbt import _explore

from envs.errors import UserError
from seal_ray.algorithm.config import make_config
from tests.command_line import Refusal
from tests.refusal import refusal
from tuning.running import main_process_cpus
from tuning.sweep.parameter import SweptParameter
from tuning.sweep.plan import SCHEDULERS, SEARCHES, TRIALS, check_plan, clamp_config, costliest, make_plan
from tuning.sweep.results import METRIC
from tuning.sweep.space import Space

SPACE = "parameters: {curator.update_every: {values: [1, 2]}, reweighting.low: {low: 0.5, high: 1}}\n"
GRID = "parameters: {curator.update_every: {values: [1, 2]}, training.lr: {values: [1.0e-4, 2.0e-4, 3.0e-4]}}\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--scheduler", "ahsa"], "--scheduler: 'ahsa' is not known; did you mean 'asha'"),
        (["--search", "bayes"], "--search: 'bayes' is not known; allowed are random, optuna, grid"),
        (["--trials", "0"], "--trials: 0 is not possible"),
        (["--rounds", "0"], "training.rounds: 0"),
        (["--space", "/nowhere"], "--space: /nowhere cannot be read"),
        (["--preset", "tyni"], "'tyni' is not known"),
        (["training.round=3"], "did you mean 'rounds'"),
        (["--search", "grid"], "--search: a grid needs values of every parameter"),
        (["--search", "optuna", "--scheduler", "pbt"], "--search: pbt changes settings while trials run"),
        (["--scheduler", "pbt", "--trials", "1"], "--trials: pbt copies trials from each other"),
        (["--scheduler", "pbt", "--rounds", "3"], "evaluation.interval: 8 gives pbt no evaluation within 3 rounds"),
        (["evaluation.interval=0"], "evaluation.interval: 0 leaves nothing to compare"),
        (["evaluation.split=test"], "evaluation.split: a sweep selects settings, and must not use the test split"),
        (["--runs", "/", "--name", "tmp"], "exists; resume it with seal-ray sweep --resume"),
        (["--resume", "/nowhere"], "/nowhere is no sweep"),
        (["--report", "/nowhere"], "/nowhere is no sweep"),
        (["--report", "a", "--storage", "b"], "--report: "),
        (["--resume", "a", "--trials", "3"], "--resume: it uses the stored settings"),
    ],
)
def test_a_mistake_is_one_sentence_and_nothing_is_started(
    arguments: list[str], sentence: str, check_refused: Refusal
) -> None:
    check_refused("sweep", *arguments, sentence=sentence)


@pytest.fixture
def space(tmp_path: Path) -> Path:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE, encoding="utf-8")
    return path


def test_a_grid_has_as_many_trials_as_points(tmp_path: Path) -> None:
    path = tmp_path / "grid.yaml"
    path.write_text(GRID, encoding="utf-8")
    assert make_plan(space=path, search="grid").trials == 6
    assert make_plan(space=path).trials == TRIALS
    with pytest.raises(UserError, match="the grid has 6 points"):
        make_plan(space=path, search="grid", trials=6)


def test_a_sweep_asks_for_what_its_costliest_trial_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "space.yaml").write_text("parameters: {curator.kind: {values: [rules, llm]}}\n")
    plan = make_plan(space=tmp_path / "space.yaml")
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 2.0})
    assert main_process_cpus(costliest(plan)) == pytest.approx(0.8)
    monkeypatch.setattr(ray, "cluster_resources", lambda: {"CPU": 1.2})
    with pytest.raises(UserError, match=r"a trial of curator\.kind=llm needs 1\.3 CPUs"):
        main_process_cpus(costliest(plan))


def test_optuna_suggests_settings_of_the_space(space: Path) -> None:
    def suggested() -> list[dict[str, Any]]:
        plan = make_plan(space=space, search="optuna")
        search = SEARCHES["optuna"](plan)
        assert search.set_search_properties(None, None, plan.space.for_tune(choices=tune.choice))
        return [search.suggest(f"trial{number}") for number in range(12)]

    found = suggested()
    assert {each["curator_update_every"] for each in found} == {1, 2}
    shares = [each["reweighting_low"] for each in found]
    assert all(0.5 <= share <= 1 for share in shares)
    assert len(set(shares)) == len(shares)
    assert suggested() == found, "the seed decides"


def test_pbt_goes_by_evaluations_and_stays_in_the_space(space: Path) -> None:
    plan = make_plan(space=space, scheduler="pbt")
    check_plan(plan)
    scheduler: Any = SCHEDULERS["pbt"](plan)
    assert isinstance(scheduler, PopulationBasedTraining)
    assert scheduler.metric == METRIC
    before = {"curator_update_every": 2, "reweighting_low": 1.2, "config": "a"}
    assert clamp_config(plan.space, before) == {**before, "reweighting_low": 1.0}
    assert before["reweighting_low"] == 1.2


def test_pbt_moves_a_choice_to_another_choice() -> None:
    space = Space((SweptParameter("solver.steps", choices=(20, 1, 7)),)).for_tune(choices=list)
    moved = {_explore({"solver_steps": 20}, space, 0.25, (1.2, 0.8), None)[0]["solver_steps"] for _ in range(50)}  # type: ignore[arg-type]
    assert moved == {20, 1, 7}


def test_a_file_is_a_preset_as_those_of_the_package_are(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("kind: method\nabout: Mine.\nsections:\n  training: {lr: 0.5}\n", encoding="utf-8")
    found = make_config(["qwen2.5-3b", str(path)], overrides=["training.rounds=7"])
    assert (found.lr, found.spec.training.rounds) == (0.5, 7)
    assert found.to_sections()["solver"] == make_config(["qwen2.5-3b"]).to_sections()["solver"]
    path.write_text("kind: model\nabout: Mine.\nsections:\n  solver: {model: 007}\n", encoding="utf-8")
    assert make_config([str(path), "seal"]).to_sections()["solver"]["model"] == "007"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is none; it needs kind, about and sections"),
        ("training: {lr: 1}", "is none; it needs kind, about and sections"),
        ("{kind: modle, about: a, sections: {}}", "kind: 'modle' is not known; did you mean 'model'"),
        ("{kind: model, about: a, sections: 3}", "sections holds none"),
        ("{kind: model, about: a, sections: {trainin: {}}}", "did you mean 'training'"),
        ("{kind: model, about: a, sections: {training: {lrr: 1}}}", "did you mean 'lr'"),
        ("{kind: model, about: a, like: seal, sections: {}}", "like: 'seal' is not known"),
        ("{kind: model, about: null, sections: {}}", "about: None is no line of text"),
        ("{kind: model, about: a, seed: 3, sections: {}}", "can have like, and no other key"),
        ("a: {", "is not valid YAML"),
    ],
)
def test_a_file_that_is_no_preset_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    assert sentence in refusal(make_config, [str(path)])
