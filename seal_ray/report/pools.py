"""Whether task writers move success towards one half: mean success of written tasks by window, over runs of many seeds.

Each window has two means: over all played tasks of the pool, which reacts late, and over the tasks written in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.table import Table
from scipy import stats  # type: ignore[import-untyped]

from envs.errors import UserError
from policies.task_writer.llm import SOUGHT
from seal_ray.report.pictures import BLACK, BLUE, DPI, RED, round_axis, save_picture
from seal_ray.report.pool import PoolWindow

KINDS = ("all played tasks", "written in the window")


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over runs with Student's 95 % interval, which is infinite for one run."""

    runs: int
    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:+.3f}, {self.high:+.3f}]" if self.runs > 1 else f"{self.value:.3f}"


def mean_of(values: Sequence[float]) -> Mean:
    """The mean of one value or more, each of a run."""
    if len(values) == 1:
        return Mean(1, values[0], float("-inf"), float("inf"))
    mean, error = fmean(values), stdev(values) / len(values) ** 0.5
    low, high = stats.t.interval(0.95, len(values) - 1, mean, error) if error else (mean, mean)
    return Mean(len(values), mean, float(low), float(high))


def success_by_window(windows: Sequence[PoolWindow]) -> dict[str, list[float | None]]:
    """Kind of mean → its value after each window of a run, None if no such task was played."""
    means: dict[str, list[float | None]] = {kind: [] for kind in KINDS}
    before = 0
    for window in windows:
        played = [(task.p, task.written) for task in window.tasks if task.p is not None]
        for kind, rates in zip(
            KINDS, ([p for p, _ in played], [p for p, written in played if written >= before]), strict=True
        ):
            means[kind].append(fmean(rates) if rates else None)
        before = window.round
    return means


@dataclass(frozen=True, slots=True)
class Movement:
    """Over runs: the mean success after each window by kind, and by how much it came `nearer` to one half.

    `nearer` is the distance of the first window minus that of the last.
    """

    rounds: Sequence[int]
    means: Mapping[str, Sequence[Mean | None]]
    nearer: Mapping[str, Mean | None]


def movement(pools: Sequence[Sequence[PoolWindow]]) -> Movement:
    """The movement of one run or more. Raises `UserError` if their windows differ."""
    rounds = [window.round for window in pools[0]]
    if any([window.round for window in pool] != rounds for pool in pools):
        raise UserError(
            "run: the runs have not the same windows; give runs of one length and one task_writer.update_every."
        )
    runs = [success_by_window(pool) for pool in pools]
    means: dict[str, list[Mean | None]] = {}
    nearer: dict[str, Mean | None] = {}
    for kind in KINDS:
        columns = zip(*(run[kind] for run in runs), strict=True)
        known = [[value for value in column if value is not None] for column in columns]
        means[kind] = [mean_of(values) if values else None for values in known]
        ends = [(run[kind][0], run[kind][-1]) for run in runs]
        gains = [abs(a - SOUGHT) - abs(b - SOUGHT) for a, b in ends if a is not None and b is not None]
        nearer[kind] = mean_of(gains) if gains else None
    return Movement(rounds, means, nearer)


def movement_table(result: Movement) -> Table:
    """A row for every window: its round, and both means with their intervals over runs."""
    table = Table("round", *KINDS, title="mean success of written tasks, with 95 % interval over runs")
    for place, number in enumerate(result.rounds):
        cells = (result.means[kind][place] for kind in KINDS)
        table.add_row(str(number), *("–" if mean is None else str(mean) for mean in cells))
    table.add_row("nearer to 0.5", *("–" if mean is None else str(mean) for mean in result.nearer.values()))
    return table


def draw_movement(result: Movement, path: Path, *, title: str = "") -> None:
    """Draws both means over rounds with their intervals over runs, as a PNG at `path`."""
    figure = Figure(figsize=(8.0, 4.5), dpi=DPI, layout="constrained")
    axes: Axes = figure.subplots()
    for kind, colour in zip(KINDS, (BLUE, RED), strict=True):
        points = [(n, mean) for n, mean in zip(result.rounds, result.means[kind], strict=True) if mean is not None]
        if not points:
            continue
        rounds, means = zip(*points, strict=True)
        axes.plot(rounds, [mean.value for mean in means], color=colour, marker="o", markersize=4, label=kind)
        if all(mean.runs > 1 for mean in means):
            low, high = [mean.low for mean in means], [mean.high for mean in means]
            axes.fill_between(rounds, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.axhline(SOUGHT, color=BLACK, linewidth=1.0)
    axes.set(title=title.replace("$", r"\$"), ylabel="mean success of written tasks", ylim=(0.0, 1.0))
    round_axis(axes)
    axes.legend(fontsize=8)
    save_picture(figure, path)
