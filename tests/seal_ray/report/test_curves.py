"""The picture of a run: a PNG of its size from whatever rows there are, and what its panels show."""

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from envs import sources
from envs.diagnosis import Label, TurnDiagnosis
from envs.errors import UserError
from envs.task import Category
from envs.verifier import Outcome, TurnVerdict
from seal_ray.metrics import METRICS, categories_of, check, describe
from seal_ray.report import pictures
from seal_ray.report.pictures import draw_curves

Row = dict[str, Any]
Draw = Callable[[list[Row]], Figure]


def row(number: int, **changes: object) -> Row:
    """A row with something for every panel."""
    return {
        "round": number,
        "solver/success": 0.3,
        "solver/success_plain": 0.2,
        "solver/success_shown": 0.4,
        "evaluation/success": 0.25,
        "evaluation/success/base": 0.3,
        "diagnosis/share/pass": 0.7,
        "diagnosis/share/state_mismatch": 0.3,
        "interface/changed": 1,
        "perf/rollout_seconds": 12.0,
        "perf/learn_seconds": 3.0,
        **{key.replace("__", "/"): value for key, value in changes.items()},
    }


@pytest.fixture
def draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Draws rows, and returns the figure."""
    made: list[Figure] = []

    def figure(**options: Any) -> Figure:
        made.append(Figure(**options))
        return made[-1]

    def drawn(rows: list[Row]) -> Figure:
        draw_curves(rows, tmp_path / "curves.png", title="cost$_$x")
        return made[-1]

    monkeypatch.setattr(pictures, "Figure", figure)
    return drawn


def legend_of(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row(1)],
        [row(1), row(2, solver__success=math.nan, perf__learn_seconds=None), {"round": 3}, row(7)],
        [row(1, solver__success=math.inf, diagnosis__share__pass=-math.inf), row(2)],
        [row(number) for number in range(1, 31)],
    ],
    ids=["none", "one", "gaps", "infinite", "many"],
)
def test_a_png_of_the_size_comes_of_any_rows(rows: list[Row], tmp_path: Path) -> None:
    draw_curves(rows, tmp_path / "curves.png", title="cost$_$x")
    with Image.open(tmp_path / "curves.png") as image:
        image.load()
        assert (image.format, image.size) == ("PNG", (1200, 900))
        assert np.asarray(image.convert("RGB")).std() > 10
    assert [path.name for path in tmp_path.iterdir()] == ["curves.png"]


def test_the_panels_are_named_and_have_units_and_legends(draw: Draw) -> None:
    figure = draw([row(1), row(2)])
    for axes in figure.axes:
        assert axes.get_title()
        assert axes.get_xlabel() == "round"
        assert axes.get_ylabel().endswith(")")
        assert axes.get_xlim() == (0.5, 2.5)
    assert list(map(legend_of, figure.axes)) == [
        ["all", "base"],
        ["interface\nchanged", "shown an\ninterface", "plain", "all"],
        ["state_mismatch", "pass"],
        ["learn", "rollout"],
    ]


def test_categories_of_another_source_are_drawn_and_are_no_formulas(draw: Draw) -> None:
    own = {f"evaluation/success/{name}": 0.25 for name in ("told", "cost_$5_to_$10", "_private")}
    axes = draw([{"round": number, "evaluation/success": 0.5, **own} for number in (1, 2)]).axes[0]
    assert set(legend_of(axes)) == {"all", "told", r"cost_\$5_to_\$10", "private"}
    assert len({str(line.get_color()) for line in axes.get_lines()}) == 4


def test_lines_hold_the_values_and_bridge_what_is_missing(draw: Draw) -> None:
    rows = [row(3, evaluation__success=0.5), row(1, evaluation__success=0.1), row(2, evaluation__success=None)]
    line = draw([row(3), *rows]).axes[0].get_lines()[-1]
    assert np.asarray(line.get_xdata()).tolist() == [1, 3]
    assert np.asarray(line.get_ydata()).tolist() == [0.1, 0.5]


def test_a_trailing_mean_is_taken_over_what_is_there() -> None:
    values = np.array([math.nan, 1.0, 3.0, math.nan, 5.0])
    assert np.array_equal(pictures.trailing_mean(values, 2), [math.nan, 1.0, 2.0, 3.0, 5.0], equal_nan=True)
    assert np.array_equal(pictures.trailing_mean(values, 1), values, equal_nan=True)


PREFIXES = {"solver", "curator", "task_writer", "pool", "diagnosis", "interface", "perf", "evaluation"}


def test_every_metric_has_a_unit_and_a_meaning_of_its_own() -> None:
    names = [name for metric in METRICS for name in metric.names()]
    assert len(set(names)) == len(names)
    for metric in METRICS:
        assert metric.unit
        assert metric.meaning.endswith(".")
    for name in names:
        assert name == "round" or name.split("/")[0] in PREFIXES
        assert re.fullmatch(r"[a-z_]+(/[a-z0-9_]+)*", name)


def test_a_name_of_a_family_is_found() -> None:
    assert describe("solver/success").meaning != describe("solver/success/base").meaning
    for category in Category:
        assert describe(f"evaluation/success/{category}").name == "evaluation/success/CATEGORY"
    for label in Label:
        assert describe(f"diagnosis/share/{label}").unit == "share"
    for outcome in Outcome:
        for label in Label:
            turn = TurnDiagnosis(0, label, "", TurnVerdict(0, outcome))
            assert describe(f"diagnosis/rho/{turn.paper_label}").name == "diagnosis/rho/LABEL"


@pytest.mark.parametrize("name", ["", "solver", "solver/success/CATEGORY", "solver/success/bose", "perf/", "Round"])
def test_an_unknown_metric_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"metric: .* is not known"):
        describe(name)
    # Among a run's own metrics it is a bug, not a user's mistake.
    with pytest.raises(ValueError, match=r"metric: .* is not known") as caught:
        check({"round": 1, name: 0.5})
    assert not isinstance(caught.value, UserError)


def test_a_category_of_a_source_that_is_known_has_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "own_sources", [])
    with pytest.raises(ValueError, match="metric: 'evaluation/success/told' is not known"):
        check({"evaluation/success/told": 0.5})
    sources.get_source("examples.own_source:SOURCE")
    check({"evaluation/success/told": 0.5, "solver/success/cannot": 1.0})
    assert describe("solver/success/told").name == "solver/success/CATEGORY"
    with pytest.raises(UserError, match="metric: 'solver/success/tld' is not known"):
        describe("solver/success/tld")
    with pytest.raises(UserError, match="did you mean 'solver/success"):
        describe("solver/succes")


def test_the_categories_are_those_that_metrics_tell_of() -> None:
    assert categories_of(["round", "solver/success/told"]) == list(Category)
    assert categories_of(["evaluation/success/base"]) == list(Category)
    assert categories_of([f"evaluation/success/{name}" for name in ("told", "base", "asked")]) == [
        *("base", "told", "asked")
    ]


@pytest.mark.parametrize("value", [None, True, "0.5", [0.5], np.float32(0.5), np.int64(1), 1j])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"metric solver/kl: .* not a float or int"):
        check({"solver/kl": value})
    check({"round": 1, "solver/kl": float("nan"), "solver/reward": np.float64(0.5), "diagnosis/rho/pass": 1})
