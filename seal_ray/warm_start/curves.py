"""The plot of a warm start: loss and success by tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from seal_ray.report.pictures import BLUE, DPI, GREEN, GREY, ORANGE, PINK, RED, as_share, save_picture

_COLOURS = (GREEN, ORANGE, PINK, BLUE)


def draw(rows: Sequence[Mapping[str, Any]], path: Path, *, title: str) -> None:
    """Draws the metrics of a warm start to a PNG file."""
    figure = Figure(figsize=(10.0, 4.0), dpi=DPI, layout="constrained")
    figure.suptitle(f"warm start of {title}", parse_math=False)
    loss, success = figure.subplots(1, 2)
    _line(loss, rows, "loss", GREY, "training")
    _line(loss, rows, "held_out_loss", RED, "held out")
    loss.set_ylabel("loss on what the model says (nats a token)")
    loss.set_ylim(bottom=0)
    names = sorted({name for row in rows for name in totals(row)})
    for place, name in enumerate(names):
        _line(success, rows, name, _COLOURS[place % len(_COLOURS)], f"{name.removeprefix('success/')}, dev")
    as_share(success, "success, greedy, plain")
    for axes in (loss, success):
        axes.set_xlabel("tokens")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False)
    save_picture(figure, path)


def totals(row: Mapping[str, Any]) -> list[str]:
    """The names of a row's metrics of success on a whole source."""
    return [name for name in row if name.startswith("success/") and name.count("/") == 1]


def _line(axes: Axes, rows: Sequence[Mapping[str, Any]], name: str, colour: str, label: str) -> None:
    points = [(row["tokens"], row[name]) for row in rows if row.get(name) is not None]
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, color=colour, label=label, marker="o" if len(points) < 30 else None, markersize=3)
