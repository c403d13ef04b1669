"""Pictures of a comparison: success over rounds with bands over seeds, and the labels of turns, arm by arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from tuning.comparison.collect import EVALUATION, Comparison
from tuning.comparison.threshold import Spent, rollouts_until, tasks_until
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
    for arm, label, style in _arms(comparison):
        runs = [trial.rows for trial in comparison.of(arm)]
        _band(left, estimates(runs, EVALUATION), style, label)
        _band(right, estimates(runs, "solver/success_plain"), style, label)
    everything = _rounds(comparison)
    for axes, what in ((left, "dialogues"), (right, "rollouts")):
        as_share(axes, f"success (% of {what})")
        finish(axes, everything)
    save_picture(figure, path)


def draw_efficiency(comparison: Comparison, path: Path) -> None:
    """Draws mean evaluation success over what it took: different tasks on the left, rollouts on the right."""
    figure = Figure(figsize=(13.0, 5.0), dpi=_DPI, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, what, spent in zip(panels, ("different tasks", "rollouts"), (tasks_until, rollouts_until), strict=True):
        for arm, label, style in _arms(comparison):
            runs = [trial.rows for trial in comparison.of(arm)]
            _band(axes, estimates(runs, EVALUATION), style, label, at=_spent(runs, spent))
        as_share(axes, "success (% of dialogues)")
        finish(axes, [])
        axes.set_title("Evaluation, plain interface")
        axes.set_xlabel(f"{what} trained on, mean over seeds")
        axes.set_xlim(left=0)
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
    return _by_round(runs, lambda _, row: row.get(metric))


def _by_round(
    runs: Sequence[Sequence[Row]], value: Callable[[Sequence[Row], Row], float | None]
) -> Mapping[int, Estimate]:
    """Round → the mean of `value(rows of the run, row of the round)` over the runs that have one."""
    found: dict[int, list[float]] = {}
    for rows in runs:
        for row in rows:
            if (each := value(rows, row)) is not None:
                found.setdefault(row["round"], []).append(each)
    return {number: mean_estimate(found[number]) for number in sorted(found)}


def _arms(comparison: Comparison) -> Iterator[tuple[str, str, tuple[str, str]]]:
    """Each arm with its label, and its colour and kind of line."""
    for place, arm in enumerate(comparison.manifest.arms):
        label = f"{arm}\n({len(comparison.of(arm, State.FINISHED))} of {len(comparison.of(arm))} finished)"
        again, colour = divmod(place, len(_COLOURS))
        yield arm, label, (_COLOURS[colour], _LINES[again % len(_LINES)])


def _spent(runs: Sequence[Sequence[Row]], spent: Spent) -> Mapping[int, float]:
    """Round with an evaluation → what was spent up to it, mean over the runs that counted it."""

    def value(rows: Sequence[Row], row: Row) -> float | None:
        return None if row.get(EVALUATION) is None else spent(rows, row["round"])

    return {number: each.mean for number, each in _by_round(runs, value).items()}


def _band(
    axes: Axes,
    points: Mapping[int, Estimate],
    style: tuple[str, str],
    label: str,
    *,
    at: Mapping[int, float] | None = None,
) -> None:
    """A line with its band, over rounds, or `at` what these stand for. `style` is its colour and the kind of line."""
    if at is not None:
        points = {number: point for number, point in points.items() if number in at}
    if not points:
        return
    colour, line = style
    places = list(points) if at is None else [at[number] for number in points]
    means = [each.mean for each in points.values()]
    axes.plot(places, means, color=colour, linestyle=line, marker="o", markersize=4, label=label)
    low = [np.nan if each.low is None else each.low for each in points.values()]
    high = [np.nan if each.high is None else each.high for each in points.values()]
    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)


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
