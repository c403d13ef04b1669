"""Pictures of a comparison: success over rounds with bands over seeds, and the labels of turns, arm by arm."""

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seal_ray.report.files import Row
from seal_ray.report.pictures import BLACK, COLOURS, LABEL_COLOURS, as_share, finish, save_picture, stack
from seal_ray.statistics import Estimate, mean_estimate
from tuning.comparison.collect import EVALUATION, ArmTrial, Comparison
from tuning.comparison.measures import ArmResult
from tuning.comparison.threshold import Cost, rollouts_until, tasks_until
from tuning.record import State

_COLOURS = (BLACK, *COLOURS[:6])
_LINES = ("solid", "dashed", "dotted")
"""If there are more arms than colours, colours repeat with another line."""
_DPI = 100


def draw_success(comparison: Comparison, path: Path) -> None:
    """Draws mean success over the seeds of each arm, in evaluation and hint-off in training, with 95 % bands."""
    figure = Figure(figsize=(13.0, 5.0), dpi=_DPI, layout="constrained")
    for axes, (title, shown) in zip(figure.subplots(1, 2), CURVES.items(), strict=True):
        axes.set_title(title)
        draw_curve(axes, comparison, *shown)
        finish(axes, rounds_of(comparison))
    save_picture(figure, path)


CURVES = {
    "Evaluation without hints": (EVALUATION, "dialogues"),
    "Training rollouts without hints": ("solver/success_plain", "rollouts"),
}
"""Title of a panel → its metric, and what the share is of."""


def draw_curve(axes: Axes, comparison: Comparison, metric: str, unit: str) -> None:
    """Draws the mean of a metric over the seeds of each arm, with its 95 % band."""
    for trials, label, style in _arms(comparison):
        draw_band(axes, estimates(trials, metric), style, label)
    as_share(axes, f"success (% of {unit})")


def draw_arm_labels(axes: Axes, comparison: Comparison, arm: str) -> None:
    """Draws the shares of the labels over rounds, mean over the seeds of an arm."""
    parts = {f"diagnosis/share/{label}": (label, colour) for label, colour in LABEL_COLOURS.items()}
    stack(axes, _mean_rows(comparison.arm_trials(arm), list(parts)), parts)
    axes.set_ylim(0, 1)
    as_share(axes, "share of turns (%)")


def draw_differences(axes: Axes, results: Sequence[ArmResult]) -> None:
    """Draws paired differences to the baseline in points, with their 95 % intervals, an arm below the other."""
    colours = [colour for _, colour in zip(results, itertools.cycle(_COLOURS), strict=False)]
    drawn = [(each, colour) for each, colour in zip(results, colours, strict=True) if each.difference is not None]
    for place, (result, colour) in enumerate(drawn):
        estimate = result.difference
        assert estimate is not None
        bounds = [100 * (estimate.mean if each is None else each) for each in (estimate.low, estimate.high)]
        axes.plot(bounds, [-place] * 2, color=colour, linewidth=2)
        axes.plot([100 * estimate.mean], [-place], color=colour, marker="s")
    axes.axvline(0, color=BLACK, linewidth=0.8)
    axes.set_yticks([-place for place in range(len(drawn))], [result.arm for result, _ in drawn])
    axes.set_ylim(-len(drawn) + 0.4, 0.6)
    axes.set_xlabel("difference (points)")
    axes.grid(visible=True, axis="x", alpha=0.25)


def draw_efficiency(comparison: Comparison, path: Path) -> None:
    """Draws mean evaluation success by its cost: different tasks on the left, rollouts on the right."""
    figure = Figure(figsize=(13.0, 5.0), dpi=_DPI, layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, unit, cost in zip(panels, ("different tasks", "rollouts"), (tasks_until, rollouts_until), strict=True):
        for trials, label, style in _arms(comparison):
            draw_band(axes, estimates(trials, EVALUATION), style, label, _costs(trials, cost))
        as_share(axes, "success (% of dialogues)")
        finish(axes, [])
        axes.set_title("Evaluation, plain interface")
        axes.set_xlabel(f"{unit} trained on, mean over seeds")
        axes.set_xlim(left=0)
    save_picture(figure, path)


def draw_labels(comparison: Comparison, path: Path) -> None:
    """Draws the shares of the labels over rounds, mean over seeds, a panel for each arm."""
    arms = list(comparison.manifest.arms)
    columns = min(3, len(arms))
    lines = -(-len(arms) // columns)
    figure = Figure(figsize=(5.5 * columns, 4.0 * lines), dpi=_DPI, layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False)
    rounds = [row for row in rounds_of(comparison) if row["round"]]
    for axes, arm in zip(panels.flat, arms, strict=False):
        axes.set_title(arm)
        draw_arm_labels(axes, comparison, arm)
        finish(axes, rounds)
    for axes in panels.flat[len(arms) :]:
        axes.set_visible(False)
    save_picture(figure, path)


def estimates(trials: Sequence[ArmTrial], metric: str) -> Mapping[int, Estimate]:
    """Round → the mean over the trials that measured the metric in it, with its interval."""
    values: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        for row in trial.rows:
            if row.get(metric) is not None:
                values[row["round"]].append(row[metric])
    return {number: mean_estimate(values[number]) for number in sorted(values)}


def _costs(trials: Sequence[ArmTrial], cost: Cost) -> Mapping[int, float]:
    """Round with an evaluation → the cost up to it, mean over the trials that counted it."""
    costs: dict[int, list[float]] = defaultdict(list)
    for trial in trials:
        for row in trial.rows:
            if row.get(EVALUATION) is not None and (value := cost(trial.rows, row["round"])) is not None:
                costs[row["round"]].append(value)
    return {number: float(np.mean(values)) for number, values in costs.items()}


def _arms(comparison: Comparison) -> Iterator[tuple[list[ArmTrial], str, tuple[str, str]]]:
    """The trials of every arm with its label, and its colour and line style."""
    for place, arm in enumerate(comparison.manifest.arms):
        trials = comparison.arm_trials(arm)
        again, colour = divmod(place, len(_COLOURS))
        label = f"{arm}\n({len(comparison.arm_trials(arm, State.FINISHED))} of {len(trials)} finished)"
        yield trials, label, (_COLOURS[colour], _LINES[again % len(_LINES)])


def draw_band(
    axes: Axes,
    points: Mapping[int, Estimate],
    style: tuple[str, str],
    label: str,
    costs: Mapping[int, float] | None = None,
) -> None:
    """Draws a line with its band over rounds, or over the costs of rounds. `style` is a colour and a line style."""
    known = [
        (number if costs is None else costs[number], point)
        for number, point in points.items()
        if costs is None or number in costs
    ]
    if not known:
        return
    colour, line = style
    places = [place for place, _ in known]
    axes.plot(
        places, [point.mean for _, point in known], color=colour, linestyle=line, marker="o", markersize=4, label=label
    )
    low = [np.nan if point.low is None else point.low for _, point in known]
    high = [np.nan if point.high is None else point.high for _, point in known]
    axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)


def _mean_rows(trials: Sequence[ArmTrial], metrics: Sequence[str]) -> list[Row]:
    means = {metric: estimates(trials, metric) for metric in metrics}
    rounds = sorted(set().union(*means.values()))
    return [
        {"round": number, **{metric: points[number].mean for metric, points in means.items() if number in points}}
        for number in rounds
    ]


def rounds_of(comparison: Comparison) -> list[Row]:
    """The rounds that any trial has reached, for an axis that all panels share."""
    return [{"round": number} for number in sorted({row["round"] for each in comparison.trials for row in each.rows})]
