"""What an earlier comparison has of the model before training is taken where it was evaluated in the same way."""

from __future__ import annotations

from pathlib import Path

import pytest

from envs.errors import UserError
from seal_ray.algorithm.config import make_config
from seal_ray.report.files import as_json
from tests.tuning.comparison.folders import constant, drawn, make_comparison, play
from tuning.comparison.merge import initial_evaluations
from tuning.comparison.plan import make_plan
from tuning.recipe import Sections

SOLVED = drawn({"base": 0.5}, 0)


def sections(*overrides: str) -> Sections:
    return make_config(["rules"], overrides=overrides).to_sections()


@pytest.fixture
def piece(tmp_path: Path) -> Path:
    """A comparison whose second trial has been evaluated before training."""
    settings = {name: as_json(found) for name, found in sections().items() if name != "curator"}
    make_comparison(tmp_path / "piece", settings=settings)
    play(tmp_path / "piece", "rules", 0, constant(0.5), solved=SOLVED)
    return tmp_path / "piece"


def test_it_is_what_came_of_round_0(piece: Path) -> None:
    found = initial_evaluations(piece, {"fixed": sections("training.lr=0.5"), "other": sections("curator.kind=none")})
    assert found["fixed"] == found["other"]
    assert found["fixed"]["suites"] == {"plain": SOLVED(0)}
    outcomes = [each for tasks in SOLVED(0).values() for each in tasks.values()]
    assert found["fixed"]["metrics"]["evaluation/success"] == sum(map(bool, outcomes)) / len(outcomes)
    plan = make_plan(["vanilla", "fixed"], seeds=1, like=piece)
    assert plan.starts == dict.fromkeys(("vanilla", "fixed"), found["fixed"])


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("solver.response=7", "--start: solver.response is .* in .*piece and 7 in the arm fixed"),
        ("evaluation.tasks=7", "--start: evaluation.tasks is"),
        ("engine.dtype=bfloat16", "--start: engine.dtype is"),
    ],
)
def test_another_evaluation_is_refused(piece: Path, override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        initial_evaluations(piece, {"fixed": sections(override)})


def test_a_comparison_without_one_is_refused(tmp_path: Path) -> None:
    make_comparison(tmp_path / "empty")
    with pytest.raises(UserError, match=r"no trial of .*empty was evaluated before its training"):
        initial_evaluations(tmp_path / "empty", {"fixed": sections()})
    with pytest.raises(UserError, match="is no comparison"):
        make_plan(["vanilla"], seeds=1, like=tmp_path / "none")
