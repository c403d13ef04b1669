"""The picture of a run: what it learnt, under which interfaces, what still fails, and where the time went."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from envs.task import JSON
from seal_ray.report.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    LABEL_COLOURS,
    ORANGE,
    PINK,
    RED,
    SKY,
    YELLOW,
    Row,
    as_share,
    finish,
    metric_values,
    save_picture,
    stack,
)
from seal_ray.report.json_lines import JsonLines
from seal_ray.report.metrics import categories_of

INCHES, DPI = (12.0, 9.0), 100
"""Size of the picture: 1200 by 900 pixels."""

_LONGEST_MEAN = 10
"""Rounds that a trailing mean takes in at most."""

_CATEGORY_COLOURS = (BLUE, RED, GREEN, ORANGE, PINK, SKY, YELLOW, GREY)
_PHASES: Mapping[str, str] = MappingProxyType(
    {
        "rollout": BLUE,
        "learn": RED,
        "sync": ORANGE,
        "advantage": YELLOW,
        "propose": GREEN,
        "curate": GREY,
        "evaluation": SKY,
        "checkpoint": PINK,
    }
)


def load_rows(path: Path) -> list[dict[str, JSON]]:
    """The rows of a `metrics.jsonl`, none where it does not exist; raises `UserError` where it holds something else."""
    return JsonLines(path).rows()


def draw_curves(rows: Sequence[Row], path: Path, *, title: str = "") -> None:
    """Draws the picture of these rows as a PNG at `path`, in the place of any drawn before.

    Where a row lacks a metric, or has null or NaN for it, a line joins its neighbours and a stack has nothing. Of rows
    of one round the last counts.
    """
    by_round = {row["round"]: row for row in rows}
    ordered = [by_round[number] for number in sorted(by_round)]
    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    if title:
        figure.suptitle(title)
    panels = figure.subplots(2, 2)
    _draw_evaluation(panels[0, 0], ordered)
    _draw_training(panels[0, 1], ordered)
    _draw_labels(panels[1, 0], ordered)
    _draw_time(panels[1, 1], ordered)
    for axes in panels.flat:
        finish(axes, ordered)
    save_picture(figure, path)


def _draw_evaluation(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_title("Evaluation, plain interface")
    found = categories_of(name for row in rows for name in row)
    for category, colour in zip(found, itertools.cycle(_CATEGORY_COLOURS), strict=False):
        _line(axes, rows, f"evaluation/success/{category}", category, colour, width=1.2)
    _line(axes, rows, "evaluation/success", "all", BLACK, width=2.4)
    as_share(axes, "success (% of dialogues)")


def _draw_training(axes: Axes, rows: Sequence[Row]) -> None:
    span = max(1, min(_LONGEST_MEAN, len(rows) // 5))
    axes.set_title(f"Training success, mean of {span} rounds" if span > 1 else "Training success")
    for name, shown_as, colour in (
        ("solver/success", "all", GREY),
        ("solver/success_plain", "plain", BLUE),
        ("solver/success_shown", "shown an\ninterface", RED),
    ):
        if span > 1:
            _line(axes, rows, name, None, colour, width=0.8, alpha=0.35)
        _line(axes, rows, name, shown_as, colour, width=2.0, span=span)
    label: str | None = "interface\nchanged"
    for row in rows:
        if row.get("interface/changed"):
            axes.axvline(row["round"], color=BLACK, linestyle=":", linewidth=0.8, label=label, zorder=1)
            label = None
    as_share(axes, "success (% of rollouts)")


def _draw_labels(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_title("What turns show")
    stack(axes, rows, {f"diagnosis/share/{label}": (label, colour) for label, colour in LABEL_COLOURS.items()})
    as_share(axes, "share of turns (%)")


def _draw_time(axes: Axes, rows: Sequence[Row]) -> None:
    axes.set_title("Time by phase")
    stack(axes, rows, {f"perf/{phase}_seconds": (phase, colour) for phase, colour in _PHASES.items()})
    axes.set_ylim(bottom=0)
    axes.set_ylabel("time (s)")


def _trailing_mean(values: NDArray[np.float64], span: int) -> NDArray[np.float64]:
    """Mean of each value and those before it, `span` in all, over those that are there."""
    means = np.full_like(values, math.nan)
    for end in range(1, len(values) + 1):
        window = values[max(0, end - span) : end]
        there = window[~np.isnan(window)]
        if there.size:
            means[end - 1] = there.mean()
    return means


def _line(
    axes: Axes,
    rows: Sequence[Row],
    name: str,
    label: str | None,
    colour: str,
    *,
    width: float,
    alpha: float = 1.0,
    span: int = 1,
) -> None:
    values = _trailing_mean(metric_values(rows, name), span)
    there = ~np.isnan(values)
    if not there.any():
        return
    # A metric that only some rounds have, as an evaluation, is one line through these.
    rounds = metric_values(rows, "round")[there]
    marker = "o" if there.sum() <= 40 and label else ""
    axes.plot(
        rounds,
        values[there],
        color=colour,
        label=label,
        marker=marker,
        linewidth=width,
        markersize=width + 2,
        alpha=alpha,
    )
