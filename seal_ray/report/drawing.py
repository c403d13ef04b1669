"""What pictures share: colours, stacks of shares, axes that count rounds, and how a picture is written."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from envs.diagnosis import Label
from envs.task import JSON
from seal_ray.report.files import replace_file

Row = Mapping[str, JSON]

# Okabe and Ito's colours (2008), told apart by colour-blind people too; lighter and darker ones where there are more.
BLACK, BLUE, SKY, GREEN, ORANGE, RED, PINK, YELLOW, GREY = (
    *("#000000", "#0072B2", "#56B4E9", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#F0E442", "#BBBBBB"),
)
LABEL_COLOURS: Mapping[str, str] = MappingProxyType(
    {
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
)
"""Label → its colour, in the order of a stack."""


def save_picture(figure: Figure, path: Path) -> None:
    """Writes the figure as a PNG in the place of any file at `path`."""
    picture = io.BytesIO()
    FigureCanvasAgg(figure).print_png(picture)  # type: ignore[no-untyped-call]
    replace_file(path, picture.getvalue())


def metric_values(rows: Sequence[Row], name: str) -> NDArray[np.float64]:
    """The metric by row, NaN where it is missing."""
    found = (row.get(name) for row in rows)
    return np.array([math.nan if value is None else float(value) for value in found], dtype=np.float64)


def stack(axes: Axes, rows: Sequence[Row], parts: Mapping[str, tuple[str, str]]) -> None:
    """Steps stacked on each other, so that a single round is seen as well as a thousand."""
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
    """Where the step of each round begins, and where the last ends."""
    return np.concatenate([rounds[:1] - 0.5, (rounds[1:] + rounds[:-1]) / 2, rounds[-1:] + 0.5])


def as_share(axes: Axes, label: str) -> None:
    """An axis from 0 to 100 %, with its label."""
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=""))
    axes.set_ylabel(label)


def finish(axes: Axes, rows: Sequence[Row]) -> None:
    """The axis of the rounds, the grid and the legend, once everything is drawn."""
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(visible=True, alpha=0.25)
    if rows:
        axes.set_xlim(rows[0]["round"] - 0.5, rows[-1]["round"] + 0.5)
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        # The last is drawn on top, and stands on top of the legend.
        axes.legend(handles[::-1], labels[::-1], fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    else:
        axes.text(0.5, 0.5, "nothing measured yet", transform=axes.transAxes, ha="center", color="#666666")
