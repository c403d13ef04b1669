"""Pictures of a comparison: success over rounds with bands over seeds, and the labels of turns, arm by arm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seal_ray.report.drawing import (
    BLACK,
    BLUE,
    GREEN,
    LABEL_COLOURS,
    ORANGE,
    PINK,
    RED,
    SKY,
    as_share,
    finish,
    save_picture,
    stack,
)
from seal_ray.report.files import Row
from tuning.comparison.collect import Comparison
from tuning.record import State
from tuning.statistics import Estimate, mean_estimate

_COLOURS = (BLACK, BLUE, RED, GREEN, ORANGE, PINK, SKY)
_LINES = ("solid", "dashed", "dotted")
"""Where there are more arms than colours, they come again with another line."""
_DPI = 100


def draw_success(comparison: Comparison, path: Path) -> None:
    """Draws mean success over the seeds of each arm, in evaluation and hint-off in training, with 95 % bands."""
    figure = Figure(figsize=(13.0, 5.0), dpi=_DPI, layout="constrained")
    left, right = figure.subplots(1, 2)
    left.set_title("Evaluation, plain interface")
    right.set_title("Training rollouts on the plain interface")
    for place, arm in enumerate(comparison.manifest.arms):
        runs = [trial.rows for trial in comparison.of(arm)]
        label = f"{arm}\n({len(comparison.of(arm, State.FINISHED))} of {len(runs)} finished)"
        again, colour = divmod(place, len(_COLOURS))
        style = (_COLOURS[colour], _LINES[again % len(_LINES)])
        _band(left, estimates(runs, "evaluation/success"), style, label)
        _band(right, estimates(runs, "solver/success_plain"), style, label)
    everything = _rounds(comparison)
    for axes, what in ((left, "dialogues"), (right, "rollouts")):
        as_share(axes, f"success (% of {what})")
        finish(axes, everything)
    save_picture(figure, path)


def draw_labels(comparison: Comparison, path: Path) -> None:
    """Draws the shares of the labels over rounds, mean over seeds, a panel for each arm."""
    arms = list(comparison.manifest.arms)
    columns = min(3, len(arms))
    lines = -(-len(arms) // columns)
    figure = Figure(figsize=(5.5 * columns, 4.0 * lines), dpi=_DPI, layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    everything = [row for row in _rounds(comparison) if row["round"]]
    for axes, arm in zip(panels.flat, arms, strict=False):
        axes.set_title(arm)
        rows = _mean_rows(
            [trial.rows for trial in comparison.of(arm)], [f"diagnosis/share/{each}" for each in LABEL_COLOURS]
        )
        stack(axes, rows, {f"diagnosis/share/{label}": (label, colour) for label, colour in LABEL_COLOURS.items()})
        as_share(axes, "share of turns (%)")
        finish(axes, everything)
    for axes in panels.flat[len(arms) :]:
        axes.set_visible(False)
    save_picture(figure, path)


def estimates(runs: Sequence[Sequence[Row]], metric: str) -> Mapping[int, Estimate]:
    """Round → the mean over the runs that measured the metric in it, with its interval."""
    found: dict[int, list[float]] = {}
    for rows in runs:
        for row in rows:
            if row.get(metric) is not None:
                found.setdefault(row["round"], []).append(row[metric])
    return {number: mean_estimate(found[number]) for number in sorted(found)}


def _band(axes: Axes, points: Mapping[int, Estimate], style: tuple[str, str], label: str) -> None:
    """A line with its band; `style` is its colour and the kind of line."""
    if not points:
        return
    rounds, (colour, line) = list(points), style
    means = [each.mean for each in points.values()]
    axes.plot(rounds, means, color=colour, linestyle=line, marker="o", markersize=4, label=label)
    low = [np.nan if each.low is None else each.low for each in points.values()]
    high = [np.nan if each.high is None else each.high for each in points.values()]
    axes.fill_between(rounds, low, high, color=colour, alpha=0.15, linewidth=0)


def _mean_rows(runs: Sequence[Sequence[Row]], metrics: Sequence[str]) -> list[Row]:
    means = {metric: estimates(runs, metric) for metric in metrics}
    rounds = sorted({number for points in means.values() for number in points})
    return [
        {"round": number, **{metric: points[number].mean for metric, points in means.items() if number in points}}
        for number in rounds
    ]


def _rounds(comparison: Comparison) -> list[Row]:
    """The rounds that any trial has reached, for an axis that all panels share."""
    return [{"round": number} for number in sorted({row["round"] for each in comparison.trials for row in each.rows})]
