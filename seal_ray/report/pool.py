"""The pool of a run's written tasks, as a table and as a picture: difficulty, categories and depth over rounds.

What a specification says was written by a model, read and dumped again; in a terminal nothing of it may act.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.table import Table
from rich.text import Text

from envs.errors import UserError
from envs.task import sorted_categories
from envs.text import visible
from seal_ray.config.schema import Share
from seal_ray.report.drawing import BLACK, BLUE, DPI, GREY, RED, as_label, save_picture
from seal_ray.report.files import RunFolder

_COLOURS = (BLUE, RED, "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#332288", "#7A3B5E")


class PoolTask(BaseModel):
    """One written task, as `pool.jsonl` has it after a window."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    task: str = Field(max_length=4_000)
    specification: str = Field(max_length=4_000)
    category: str = Field(max_length=64)
    depth: int
    writer: str = Field(max_length=200)
    profile: str = Field(max_length=64)
    written: int
    played: int | None
    rollouts: int
    p: Share | None
    low: Share
    high: Share
    left_out: bool


class PoolWindow(BaseModel):
    """The pool after a window that ended with this round."""

    model_config = ConfigDict(extra="ignore")
    round: int
    tasks: list[PoolTask]


def read_pool(path: Path) -> list[PoolWindow]:
    """The pool of a run after each of its windows. Raises `UserError` for a folder that has none."""
    if not (path / "config.yaml").is_file():
        raise UserError(f"run: {str(path)!r:.200} is no folder of a run; it holds no config.yaml.")
    if not (path / "pool.jsonl").is_file():
        raise UserError(f"run: {str(path)!r:.200} has no pool.jsonl; no window of a writer of tasks has ended in it.")
    folder = RunFolder(path)
    found = []
    for number, row in enumerate(folder.pool.rows(), 1):
        try:
            found.append(PoolWindow.model_validate(row))
        except ValidationError as error:
            place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
            raise UserError(f"{folder.pool.path}: line {number} is no window of a pool ({place:.80}).") from None
    if not found:
        raise UserError(f"run: {str(path)!r:.200} has no pool.jsonl; no window of a writer of tasks has ended in it.")
    return found


def newest(tasks: Sequence[PoolTask], limit: int = 0) -> list[PoolTask]:
    """The tasks written last, the newest first, `limit` of them (0 for all)."""
    found = sorted(tasks, key=lambda each: -each.written)
    return found[:limit] if limit else found


def pool_table(tasks: Sequence[PoolTask]) -> Table:
    """A numbered row a task, without its specification. The interval of p is of 90 %."""
    table = Table()
    for name in ("task", "category", "depth", "p", "rollouts", "written", "played", "writer", "profile"):
        right = name in ("task", "depth", "p", "rollouts", "written", "played")
        table.add_column(name, no_wrap=name in ("task", "p"), justify="right" if right else "left")
    for number, each in enumerate(tasks, 1):
        p = "–" if each.p is None else f"{each.p:.2f} [{each.low:.2f}, {each.high:.2f}]"
        table.add_row(
            *(
                str(number),
                Text(visible(each.category)),
                str(each.depth),
                p + (" *" if each.left_out else ""),
                str(each.rollouts),
            ),
            *(str(each.written), "–" if each.played is None else str(each.played)),
            *(Text(visible(text)) for text in (each.writer, each.profile)),
        )
    table.caption = "*: among the easiest or the hardest, not drawn again"
    return table


def draw_pool(windows: Sequence[PoolWindow], path: Path, *, title: str = "") -> None:
    """Draws four pictures over rounds as one PNG at `path`, in the place of any drawn before.

    Difficulty of all played tasks and of those just written; how it is spread; categories; depth.
    """
    figure = Figure(figsize=(12.0, 8.0), dpi=DPI, layout="constrained")
    (difficulty, spread), (category, depth) = figure.subplots(2, 2)
    figure.suptitle(title or "Pool", parse_math=False)
    rounds = [window.round for window in windows]
    _difficulty(difficulty, windows)
    _spread(spread, windows)
    names = sorted_categories(task.category for window in windows for task in window.tasks)
    _shares(category, windows, names, lambda task: task.category)
    category.set_ylabel("share of the pool by category")
    depths = sorted({task.depth for window in windows for task in window.tasks})
    _shares(depth, windows, [str(each) for each in depths], lambda task: str(task.depth))
    depth.set_ylabel("share of the pool by the user's requests")
    for axes in (difficulty, category, depth):
        axes.set_xlabel("round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axes.grid(visible=True, alpha=0.25)
        if len(rounds) > 1:
            axes.set_xlim(rounds[0], rounds[-1])
    save_picture(figure, path)


def _difficulty(axes: Axes, windows: Sequence[PoolWindow]) -> None:
    """Mean success with the interval of the mean (two standard errors) over tasks."""
    kinds: tuple[tuple[str, str, Callable[[PoolWindow, int], list[float]]], ...] = (
        ("all played tasks", BLUE, lambda window, _: [t.p for t in window.tasks if t.p is not None]),
        (
            "written in the window",
            RED,
            lambda window, begin: [t.p for t in window.tasks if t.p is not None and t.written >= begin],
        ),
    )
    for label, colour, chosen in kinds:
        points = []
        before = 0
        for window in windows:
            rates = chosen(window, before)
            before = window.round
            if rates:
                error = 2 * float(np.std(rates, ddof=1)) / len(rates) ** 0.5 if len(rates) > 1 else 0.0
                points.append((window.round, float(np.mean(rates)), error))
        if points:
            at, means, errors = zip(*points, strict=True)
            axes.errorbar(at, means, yerr=errors, color=colour, marker="o", markersize=4, capsize=3, label=label)
    axes.axhline(0.5, color=BLACK, linewidth=1.0)
    axes.set_ylim(0.0, 1.0)
    axes.set_ylabel("mean success of tasks")
    if axes.containers:
        axes.legend(fontsize=8)


def _spread(axes: Axes, windows: Sequence[PoolWindow]) -> None:
    """How success is spread in the first window and the last."""
    edges: Any = np.linspace(0.0, 1.0, 11)
    chosen = {windows[0].round: (windows[0], GREY), windows[-1].round: (windows[-1], BLUE)}
    for number, (window, colour) in chosen.items():
        rates = [task.p for task in window.tasks if task.p is not None]
        if rates:
            weights = np.full(len(rates), 1 / len(rates))
            axes.hist(rates, bins=edges, weights=weights, color=colour, alpha=0.6, label=f"after round {number}")
    axes.set_xlabel("success of a task")
    axes.set_ylabel("share of the played tasks")
    if axes.patches:
        axes.legend(fontsize=8)


def _shares(axes: Axes, windows: Sequence[PoolWindow], names: Sequence[str], of: Callable[[PoolTask], str]) -> None:
    counts = [Counter(map(of, window.tasks)) for window in windows]
    total = sum(counts, Counter[str]())
    commonest = [name for name, _ in total.most_common(len(_COLOURS))]
    for place, name in enumerate(name for name in names if name in commonest):
        shares = [count[name] / max(1, count.total()) for count in counts]
        colour = _COLOURS[place]
        label = as_label(name)
        axes.plot([window.round for window in windows], shares, marker="o", markersize=4, color=colour, label=label)
    axes.set_ylim(0.0, 1.0)
    if names:
        axes.legend(fontsize=8)
