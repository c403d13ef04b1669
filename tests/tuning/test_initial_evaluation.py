"""A trial takes the evaluation before training from one beside it that has evaluated in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from seal_ray.algorithm.config import make_config
from seal_ray.report.files import RunFolder
from tests.tuning.comparison.folders import constant, drawn, play
from tuning.initial_evaluation import neighbour_evaluation
from tuning.recipe import Sections

SOLVED = drawn({"base": 0.5}, 0)


def sections(*overrides: str) -> Sections:
    return make_config(["vanilla"], overrides=overrides).to_sections()


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A run folder beside one without an evaluation and one that was evaluated before its training."""
    RunFolder(tmp_path / "trials" / "a-seed0").write_config(sections())
    RunFolder(tmp_path / "trials" / "b-seed0").write_config(sections())
    play(tmp_path, "b", 0, constant(0.5), solved=SOLVED)
    return RunFolder(tmp_path / "trials" / "c-seed0").path


def test_it_is_that_of_another_trial(own: Path) -> None:
    found = neighbour_evaluation(own, sections("training.lr=0.5", "curator.kind=fixed"))
    assert found is not None
    assert found["suites"] == {"plain": SOLVED(0)}
    assert set(found["metrics"]) == {"evaluation/success", "evaluation/success/base"}


def test_what_is_no_number_is_left_out(own: Path) -> None:
    metrics = RunFolder(own.parent / "b-seed0").metrics
    metrics.replace([{**row, "evaluation/mine/rare": None} for row in metrics.rows()])
    found = neighbour_evaluation(own, sections())
    assert found is not None
    assert set(found["metrics"]) == {"evaluation/success", "evaluation/success/base"}


@pytest.mark.parametrize("override", ["solver.response=7", "evaluation.tasks=7", "engine.dtype=bfloat16"])
def test_another_evaluation_is_not_taken(own: Path, override: str) -> None:
    assert neighbour_evaluation(own, sections(override)) is None


def test_its_own_does_not_count(own: Path) -> None:
    assert neighbour_evaluation(own.parent / "b-seed0", sections()) is None
