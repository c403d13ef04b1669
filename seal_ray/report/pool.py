"""The pool of a run's written tasks as table and pictures: difficulty, categories and depth over rounds.

A model has written the specifications: control characters in them must not reach a terminal.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from pydantic import BaseModel, ConfigDict, Field
from rich.table import Table
from rich.text import Text

from envs.errors import UserError
from envs.task import sorted_categories
from envs.text import visible
from policies.task_writer.llm import SOUGHT
from seal_ray.config.schema import Share
from seal_ray.report.files import read_windows
from seal_ray.report.pictures import BLACK, BLUE, COLOURS, GREY, RED, as_label
from seal_ray.statistics import Estimate, mean_estimate


class PoolTask(BaseModel):
    """A written task in a row of `pool.jsonl`."""

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
    """The pool after a window, which ended with this round."""

    model_config = ConfigDict(extra="ignore")
    round: int
    tasks: list[PoolTask]


def read_pool(path: Path) -> list[PoolWindow]:
    """The pool of a run after each of its windows. Raises `UserError` for a folder without any."""
    return read_windows(path, "pool.jsonl", PoolWindow, "task writer")


def newest(tasks: Sequence[PoolTask], limit: int = 0) -> list[PoolTask]:
    """The newest tasks first, at most `limit` of them (0 for all)."""
    ordered = sorted(tasks, key=lambda task: -task.written)
    return ordered[:limit] if limit else ordered


def pool_table(tasks: Sequence[PoolTask]) -> Table:
    """A numbered row for every task, without its specification. The interval of p is of 90 %."""
    table = Table(caption="*: among the easiest or the hardest, not drawn again")
    for name in ("task", "category", "depth", "p", "rollouts", "written", "played", "writer", "profile"):
        text = name in ("category", "writer", "profile")
        table.add_column(name, no_wrap=name in ("task", "p"), justify="left" if text else "right")
    for number, task in enumerate(tasks, 1):
        p = "–" if task.p is None else f"{task.p:.2f} [{task.low:.2f}, {task.high:.2f}]"
        category, writer, profile = (Text(visible(text)) for text in (task.category, task.writer, task.profile))
        played = "–" if task.played is None else task.played
        numbers = (task.depth, p + (" *" if task.left_out else ""), task.rollouts, task.written, played)
        table.add_row(str(number), category, *map(str, numbers), writer, profile)
    return table


def _draw_difficulty(axes: Axes, windows: Sequence[PoolWindow]) -> None:
    """Mean success with the interval of the mean (two standard errors) over tasks."""
    for colour, (label, by_window) in zip((BLUE, RED), _rates_by_window(windows).items(), strict=True):
        points = []
        for window, rates in zip(windows, by_window, strict=True):
            if rates:
                error = 2 * float(np.std(rates, ddof=1)) / len(rates) ** 0.5 if len(rates) > 1 else 0.0
                points.append((window.round, float(np.mean(rates)), error))
        if points:
            rounds, means, errors = zip(*points, strict=True)
            axes.errorbar(rounds, means, yerr=errors, color=colour, marker="o", markersize=4, capsize=3, label=label)
    axes.axhline(0.5, color=BLACK, linewidth=1.0)
    axes.set_ylabel("mean success of tasks")


def draw_spread(axes: Axes, windows: Sequence[PoolWindow]) -> None:
    """The distribution of success after the first window and after the last."""
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
        axes.legend()


def _draw_categories(axes: Axes, windows: Sequence[PoolWindow]) -> None:
    names = sorted_categories(task.category for window in windows for task in window.tasks)
    _draw_shares(axes, windows, names, lambda task: task.category)


def _draw_depth(axes: Axes, windows: Sequence[PoolWindow]) -> None:
    depths = sorted({task.depth for window in windows for task in window.tasks})
    _draw_shares(axes, windows, list(map(str, depths)), lambda task: str(task.depth))


def _draw_shares(
    axes: Axes, windows: Sequence[PoolWindow], names: Sequence[str], key: Callable[[PoolTask], str]
) -> None:
    counts = [Counter(map(key, window.tasks)) for window in windows]
    total = sum(counts, Counter[str]())
    commonest = [name for name, _ in total.most_common(len(COLOURS))]
    rounds = [window.round for window in windows]
    for colour, name in zip(COLOURS, (name for name in names if name in commonest), strict=False):
        shares = [count[name] / max(1, count.total()) for count in counts]
        axes.plot(rounds, shares, marker="o", markersize=4, color=colour, label=as_label(name))
    axes.set_ylabel("share of the pool")


POOL_PANELS = {
    "Success of written tasks": _draw_difficulty,
    "Pool by category": _draw_categories,
    "Pool by number of requests": _draw_depth,
}
"""Title of a picture over rounds → the function that draws it from the windows of a pool."""


KINDS = ("all played tasks", "written in the window")


def _cell(mean: Estimate | None) -> str:
    if mean is None:
        return "–"
    return f"{mean.mean:.3f}" + ("" if mean.low is None else f" [{mean.low:+.3f}, {mean.high:+.3f}]")


def success_by_window(windows: Sequence[PoolWindow]) -> dict[str, list[float | None]]:
    """Kind of mean → its value after each window of a run, None if no such task was played."""
    by_kind = _rates_by_window(windows).items()
    return {kind: [fmean(rates) if rates else None for rates in by_window] for kind, by_window in by_kind}


def _rates_by_window(windows: Sequence[PoolWindow]) -> dict[str, list[list[float]]]:
    """Kind of tasks → the success of each such task that was played, by window."""
    rates: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    before = 0
    for window in windows:
        played = [(task.p, task.written) for task in window.tasks if task.p is not None]
        rates[KINDS[0]].append([p for p, _ in played])
        rates[KINDS[1]].append([p for p, written in played if written >= before])
        before = window.round
    return rates


@dataclass(frozen=True, slots=True)
class Movement:
    """Over runs: the mean success after each window by kind, and by how much it came `nearer` to one half.

    `nearer` is the distance of the first window minus that of the last.
    """

    rounds: Sequence[int]
    means: Mapping[str, Sequence[Estimate | None]]
    nearer: Mapping[str, Estimate | None]


def movement(pools: Sequence[Sequence[PoolWindow]]) -> Movement:
    """The movement of one run or more. Raises `UserError` if their windows differ."""
    rounds = [window.round for window in pools[0]]
    if any([window.round for window in pool] != rounds for pool in pools):
        raise UserError(
            "run: the runs have not the same windows; give runs of one length and one task_writer.update_every."
        )
    runs = [success_by_window(pool) for pool in pools]
    means: dict[str, list[Estimate | None]] = {}
    nearer: dict[str, Estimate | None] = {}
    for kind in KINDS:
        columns = zip(*(run[kind] for run in runs), strict=True)
        known = [[value for value in column if value is not None] for column in columns]
        means[kind] = [mean_estimate(values) if values else None for values in known]
        ends = [(run[kind][0], run[kind][-1]) for run in runs]
        gains = [abs(a - SOUGHT) - abs(b - SOUGHT) for a, b in ends if a is not None and b is not None]
        nearer[kind] = mean_estimate(gains) if gains else None
    return Movement(rounds, means, nearer)


def movement_table(result: Movement) -> Table:
    """A row for every window: its round, and both means with their intervals over runs."""
    table = Table("round", *KINDS, title="mean success of written tasks, with 95 % interval over runs")
    for place, number in enumerate(result.rounds):
        cells = (result.means[kind][place] for kind in KINDS)
        table.add_row(str(number), *(_cell(mean) for mean in cells))
    table.add_row("nearer to 0.5", *(_cell(mean) for mean in result.nearer.values()))
    return table
