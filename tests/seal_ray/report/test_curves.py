"""The picture of a run: a PNG of its size from whatever rows there are, and what its panels show."""

import math
import re
import struct
import zlib
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
from seal_ray.report.pictures import LABEL_COLOURS, draw_curves

Row = dict[str, Any]


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
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures drawn in a test."""
    drawn: list[Figure] = []

    class Kept(Figure):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            drawn.append(self)

    monkeypatch.setattr(pictures, "Figure", Kept)
    return drawn


def drawn(rows: list[Row], path: Path) -> bytes:
    draw_curves(rows, path, title="cost$_$x")
    return path.read_bytes()


def pixels(png: bytes, path: Path) -> np.ndarray[Any, Any]:
    path.write_bytes(png)
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"round": 1}],
        [row(1)],
        [row(1), row(2, solver__success=math.nan, perf__learn_seconds=None), {"round": 3}, row(7)],
        [row(1, solver__success=math.inf, diagnosis__share__pass=-math.inf), row(2)],
        [row(number) for number in range(1, 121)],
    ],
    ids=["none", "empty", "one", "gaps", "infinite", "many"],
)
def test_a_png_of_the_size_comes_of_any_rows(rows: list[Row], tmp_path: Path) -> None:
    png = drawn(rows, tmp_path / "curves.png")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    (length,) = struct.unpack(">I", png[8:12])
    assert struct.unpack(">II", png[16:24]) == (1200, 900)
    assert struct.unpack(">I", png[16 + length : 20 + length]) == (zlib.crc32(png[12 : 16 + length]),)
    assert pixels(png, tmp_path / "copy.png").std() > 10
    assert {path.name for path in tmp_path.iterdir()} == {"curves.png", "copy.png"}


@pytest.mark.parametrize(
    ("metric", "place"),
    [
        ("evaluation/success", (0, 0)),
        ("solver/success_plain", (0, 1)),
        ("diagnosis/share/pass", (1, 0)),
        ("perf/learn_seconds", (1, 1)),
    ],
)
def test_a_metric_changes_its_panel(metric: str, place: tuple[int, int], tmp_path: Path) -> None:
    rows = [row(1), row(2), row(3)]
    before = pixels(drawn(rows, tmp_path / "curves.png"), tmp_path / "copy.png")
    rows[1][metric] *= 0.5
    after = pixels(drawn(rows, tmp_path / "curves.png"), tmp_path / "copy.png")
    differs = (before != after).any(axis=2)
    parts = {(i, j): differs[450 * i : 450 * (i + 1), 600 * j : 600 * (j + 1)].any() for i in (0, 1) for j in (0, 1)}
    assert parts == {each: each == place for each in parts}


def test_the_panels_are_named_and_have_units_and_legends(figures: list[Figure], tmp_path: Path) -> None:
    drawn([row(1), row(2)], tmp_path / "curves.png")
    (figure,) = figures
    assert len(figure.axes) == 4
    for axes in figure.axes:
        assert axes.get_title()
        assert axes.get_xlabel() == "round"
        assert axes.get_ylabel().endswith(")")
        assert axes.get_legend() is not None
        assert axes.get_xlim() == (0.5, 2.5)
    texts = [[text.get_text() for text in legend.get_texts()] for axes in figure.axes if (legend := axes.get_legend())]
    assert texts == [
        ["all", "base"],
        ["interface\nchanged", "shown an\ninterface", "plain", "all"],
        ["state_mismatch", "pass"],
        ["learn", "rollout"],
    ]


def test_categories_of_another_source_are_drawn(figures: list[Figure], tmp_path: Path) -> None:
    own = {"evaluation/success": 0.5, "evaluation/success/told": 0.25, "evaluation/success/cannot": 0.75}
    drawn([{"round": number, **own} for number in (1, 2)], tmp_path / "curves.png")
    legend = figures[0].axes[0].get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {"all", "told", "cannot"}
    assert len({str(line.get_color()) for line in figures[0].axes[0].get_lines()}) == 3


def test_a_category_is_no_formula_and_is_not_hidden(figures: list[Figure], tmp_path: Path) -> None:
    own = {"evaluation/success/cost_$5_to_$10": 0.25, "evaluation/success/_private": 0.75}
    drawn([{"round": number, **own} for number in (1, 2)], tmp_path / "curves.png")
    legend = figures[0].axes[0].get_legend()
    assert legend is not None
    assert {text.get_text() for text in legend.get_texts()} == {r"cost_\$5_to_\$10", "private"}


def test_lines_hold_the_values_and_bridge_what_is_missing(figures: list[Figure], tmp_path: Path) -> None:
    rows = [row(3, evaluation__success=0.5), row(1, evaluation__success=0.1), row(2, evaluation__success=None)]
    drawn([row(3), *rows], tmp_path / "curves.png")
    line = figures[0].axes[0].get_lines()[-1]
    assert np.asarray(line.get_xdata()).tolist() == [1, 3]
    assert np.asarray(line.get_ydata()).tolist() == [0.1, 0.5]


def test_a_trailing_mean_is_taken_over_what_is_there() -> None:
    values = np.array([math.nan, 1.0, 3.0, math.nan, 5.0])
    assert np.array_equal(pictures.trailing_mean(values, 2), [math.nan, 1.0, 2.0, 3.0, 5.0], equal_nan=True)
    assert np.array_equal(pictures.trailing_mean(values, 1), values, equal_nan=True)


def test_every_drawn_metric_is_defined() -> None:
    for category in categories_of(row(1)):
        describe(f"evaluation/success/{category}")
    for label in LABEL_COLOURS:
        describe(f"diagnosis/share/{label}")
    for phase in pictures.PHASES:
        describe(f"perf/{phase}_seconds")
    for name in row(1):
        describe(name)


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


def test_the_categories_are_those_that_metrics_tell_of() -> None:
    assert categories_of(["round", "solver/success/told"]) == list(Category)
    assert categories_of(["evaluation/success/base"]) == list(Category)
    assert categories_of([f"evaluation/success/{name}" for name in ("told", "base", "asked")]) == [
        *("base", "told", "asked")
    ]


def test_a_misspelt_metric_is_answered_with_the_right_one() -> None:
    with pytest.raises(UserError, match="did you mean 'solver/success"):
        describe("solver/succes")


@pytest.mark.parametrize("value", [None, True, "0.5", [0.5], np.float32(0.5), np.int64(1), 1j])
def test_what_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"metric solver/kl: .* not a float or int"):
        check({"solver/kl": value})


def test_numbers_are_let_through() -> None:
    check({})
    check({"round": 1, "solver/kl": float("nan"), "solver/reward": np.float64(0.5), "diagnosis/rho/pass": 1})
