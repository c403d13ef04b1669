"""The picture of a run, and common parts of pictures: colours, stacks, axes of rounds, writing a picture."""

import io
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from envs.diagnosis import Label
from envs.text import visible
from seal_ray.metrics import categories_of
from seal_ray.report.files import Row, replace_file

# Okabe and Ito's colours (2008), which colour-blind people can distinguish.
BLACK, BLUE, SKY, GREEN, ORANGE, RED, PINK, YELLOW, GREY = (
    *("#000000", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#F0E442", "#BBBBBB"),
)
COLOURS = (BLUE, RED, GREEN, ORANGE, PINK, SKY, "#332288", "#7A3B5E")
LABEL_COLOURS: Mapping[str, str] = {
    Label.PASS: GREEN,
    Label.CORRECT_ABSTENTION: "#9ADBC5",
    Label.SPURIOUS_TOOL_CALL: RED,
    Label.INVALID_TOOL_CALL: ORANGE,
    Label.ARGUMENT_MISMATCH: YELLOW,
    Label.RECOVERY_FAILURE: PINK,
    Label.MISSING_TOOL_CALL: BLUE,
    Label.INHERITED_STATE: SKY,
    Label.STATE_MISMATCH: "#332288",
    Label.RESPONSE_MISMATCH: "#7A3B5E",
    Label.NOT_REACHED: GREY,
}
"""Label → its colour, in the order of a stack."""

INCHES, DPI = (12.0, 9.0), 100
"""Size of the picture: 1200 by 900 pixels."""
_LONGEST_MEAN = 10
"""Longest trailing mean, in rounds."""
_CATEGORY_COLOURS = (BLUE, RED, GREEN, ORANGE, PINK, SKY, YELLOW, GREY)
PHASES: Mapping[str, str] = {
    "rollout": BLUE,
    "learn": RED,
    "sync": ORANGE,
    "advantage": YELLOW,
    "propose": GREEN,
    "curate": GREY,
    "evaluation": SKY,
    "checkpoint": PINK,
}


def save_picture(figure: Figure, path: Path) -> None:
    """Writes the figure as a PNG at `path`, atomically."""
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture)  # type: ignore[no-untyped-call]
    replace_file(path, picture.getvalue())


def metric_values(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """The metric by row, NaN where it is missing."""
    return np.array([math.nan if row.get(name) is None else float(row[name]) for row in rows], dtype=np.float64)


def stack(axes: Axes, rows: Sequence[Row], parts: Mapping[str, tuple[str, str]]) -> None:
    """Draws stacked steps, which are visible with one round as with a thousand."""
    if not rows:
        return
    edges = _edges(metric_values(rows, "round"))
    base = np.zeros(len(rows))
    for name, (label, colour) in parts.items():
        values = np.nan_to_num(metric_values(rows, name), nan=0.0, posinf=0.0, neginf=0.0)
        if values.any():
            axes.stairs(base + values, edges, baseline=base, fill=True, color=colour, label=label)
            base = base + values


def _edges(rounds: NDArray[np.float64]) -> NDArray[np.float64]:
    """The begin of each round's step, and the end of the last."""
    return np.concatenate([rounds[:1] - 0.5, (rounds[1:] + rounds[:-1]) / 2, rounds[-1:] + 0.5])


def as_share(axes: Axes, label: str) -> None:
    """An axis of shares in percent, cut to the drawn values, with its label."""
    low, high = axes.get_ylim()
    axes.set_ylim(max(0.0, low), min(1.0, high))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set_ylabel(label)


def finish(axes: Axes, rows: Sequence[Row]) -> None:
    """The axis of rounds, the grid and the legend, once everything is drawn."""
    axes.set_xlabel(axes.get_xlabel() or "round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(visible=True, alpha=0.25)
    if rows:
        axes.set_xlim(rows[0]["round"] - 0.5, rows[-1]["round"] + 0.5)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        # The last part is on top of the stack, and of the legend.
        axes.legend(handles[::-1], labels[::-1], fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    else:
        axes.text(0.5, 0.6, "nothing measured yet", transform=axes.transAxes, ha="center", color="#666666")


def latest_rows(rows: Sequence[Row]) -> list[Row]:
    """The last row of each round, in their order."""
    by_round = {row["round"]: row for row in rows}
    return [by_round[number] for number in sorted(by_round)]


def draw_curves(rows: Sequence[Row], path: Path, *, title: str = "") -> None:
    """Draws the picture of these rows as a PNG at `path`. Of rows of one round the last counts.

    If a row lacks a metric, or has null or NaN, a line joins its neighbours and a stack has a gap.
    """
    ordered = latest_rows(rows)
    figure = Figure(figsize=INCHES, dpi=DPI, layout="constrained")
    if title:
        figure.suptitle(title, parse_math=False)
    for (title, draw), axes in zip(PANELS.items(), figure.subplots(2, 2).flat, strict=True):
        axes.set_title(title)
        draw(axes, ordered)
        finish(axes, ordered)
    save_picture(figure, path)


def _draw_evaluation(axes: Axes, rows: Sequence[Row]) -> None:
    categories = categories_of(name for row in rows for name in row)
    for category, colour in zip(categories, itertools.cycle(_CATEGORY_COLOURS), strict=False):
        _line(axes, rows, f"evaluation/success/{category}", as_label(category), color=colour, width=1.2)
    _line(axes, rows, "evaluation/success", "all", color=BLACK, width=2.4)
    as_share(axes, "success (% of dialogues)")


def _draw_training(axes: Axes, rows: Sequence[Row]) -> None:
    span = max(1, min(_LONGEST_MEAN, len(rows) // 5))
    if span > 1:
        axes.set_xlabel(f"round (mean of {span})")
    for name, legend, colour in (
        ("solver/success", "all", GREY),
        ("solver/success_plain", "plain", BLUE),
        ("solver/success_shown", "shown an\ninterface", RED),
    ):
        if span > 1:
            _line(axes, rows, name, None, color=colour, width=0.8, alpha=0.35)
        _line(axes, rows, name, legend, color=colour, width=2.0, span=span)
    label: str | None = "interface\nchanged"
    for row in rows:
        if row.get("interface/changed"):
            axes.axvline(row["round"], color=BLACK, linestyle=":", linewidth=0.8, label=label, zorder=1)
            label = None
    as_share(axes, "success (% of rollouts)")


def _draw_labels(axes: Axes, rows: Sequence[Row]) -> None:
    stack(axes, rows, {f"diagnosis/share/{label}": (label, colour) for label, colour in LABEL_COLOURS.items()})
    axes.set_ylim(0, 1)
    as_share(axes, "share of turns (%)")


def _draw_time(axes: Axes, rows: Sequence[Row]) -> None:
    stack(axes, rows, {f"perf/{phase}_seconds": (phase, colour) for phase, colour in PHASES.items()})
    axes.set_ylim(bottom=0)
    axes.set_ylabel("time (s)")


def _draw_tokens(axes: Axes, rows: Sequence[Row]) -> None:
    for name, legend, colour in (("solver/tokens_sampled", "sampled", BLUE), ("solver/tokens", "learnt from", RED)):
        _line(axes, rows, name, legend, color=colour, width=2.0)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(EngFormatter())
    axes.set_ylabel("tokens of a round")


PANELS = {
    "Evaluation without hints": _draw_evaluation,
    "Training success with and without hints": _draw_training,
    "Labels of turns": _draw_labels,
    "Time by phase": _draw_time,
}
"""Title of a picture → the function that draws it from rows of metrics."""
MORE_PANELS = {"Tokens": _draw_tokens}
"""Pictures of the page alone."""


def as_label(text: str) -> str:
    """A text of others as a label: without formulas, and without the underscores that hide a label."""
    return visible(text).replace("$", r"\$").lstrip("_")


def trailing_mean(values: NDArray[np.float64], span: int) -> NDArray[np.float64]:
    """Mean of each value and its predecessors, `span` in all, without NaN."""
    means = np.full_like(values, math.nan)
    for end in range(1, len(values) + 1):
        window = values[max(0, end - span) : end]
        known = window[~np.isnan(window)]
        if known.size:
            means[end - 1] = known.mean()
    return means


def _line(
    axes: Axes, rows: Sequence[Row], name: str, label: str | None, *, width: float, span: int = 1, **style: Any
) -> None:
    values = trailing_mean(metric_values(rows, name), span)
    known = ~np.isnan(values)
    if not known.any():
        return
    # A metric that only some rounds have, such as an evaluation, is one line through these.
    rounds = metric_values(rows, "round")[known]
    marker = "o" if known.sum() <= 40 and label else ""
    axes.plot(rounds, values[known], label=label, marker=marker, linewidth=width, markersize=width + 2, **style)
