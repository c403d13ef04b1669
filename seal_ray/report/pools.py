"""Whether writers move success towards one half: the mean success of written tasks by window, over runs of many seeds.

Two means of a window: that of all tasks of the pool that were played, and that of the tasks written in it alone. What
the first shows late, the second shows at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.table import Table

from envs.errors import UserError
from policies.task_writer.specification_text import SOUGHT
from seal_ray.report.drawing import BLACK, BLUE, DPI, RED, save_picture
from seal_ray.report.pool import PoolWindow

KINDS = ("all played tasks", "written in the window")


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over runs with Student's interval of 95 %, as wide as can be where there is one run."""

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
    from scipy.stats import t as student  # type: ignore[import-untyped]

    half = float(student.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
    return Mean(len(values), fmean(values), fmean(values) - half, fmean(values) + half)


def success_by_window(windows: Sequence[PoolWindow]) -> dict[str, list[float | None]]:
    """Kind of mean → its value after each window of a run, None where no such task was played."""
    found: dict[str, list[float | None]] = {kind: [] for kind in KINDS}
    before = 0
    for window in windows:
        played = [(task.p, task.written) for task in window.tasks if task.p is not None]
        for kind, rates in zip(KINDS, ([p for p, _ in played], [p for p, at in played if at >= before]), strict=True):
            found[kind].append(fmean(rates) if rates else None)
        before = window.round
    return found


@dataclass(frozen=True, slots=True)
class Movement:
    """Over runs: the mean success after each window by kind, and what the distance to one half lost.

    The loss is that of the last window against the first, of each run; it is above 0 where success moved towards it.
    """

    rounds: Sequence[int]
    means: Mapping[str, Sequence[Mean | None]]
    nearer: Mapping[str, Mean | None]


def movement(pools: Sequence[Sequence[PoolWindow]]) -> Movement:
    """Of one run or more. Raises `UserError` where their windows are not the same."""
    rounds = [window.round for window in pools[0]]
    if any([window.round for window in pool] != rounds for pool in pools):
        raise UserError(
            "run: the runs have different windows; give runs of one length and one task_writer.update_every."
        )
    runs = [success_by_window(pool) for pool in pools]
    means: dict[str, list[Mean | None]] = {}
    nearer: dict[str, Mean | None] = {}
    for kind in KINDS:
        columns = [[run[kind][place] for run in runs] for place in range(len(rounds))]
        given = [[each for each in column if each is not None] for column in columns]
        means[kind] = [mean_of(each) if each else None for each in given]
        ends = [(run[kind][0], run[kind][-1]) for run in runs]
        gains = [abs(a - SOUGHT) - abs(b - SOUGHT) for a, b in ends if a is not None and b is not None]
        nearer[kind] = mean_of(gains) if gains else None
    return Movement(rounds, means, nearer)


def movement_table(found: Movement) -> Table:
    """A row a window: round, and both means with their intervals over runs."""
    table = Table("round", *KINDS, title="mean success of written tasks, with 95 % interval over runs")
    for place, number in enumerate(found.rounds):
        cells = (found.means[kind][place] for kind in KINDS)
        table.add_row(str(number), *("–" if mean is None else str(mean) for mean in cells))
    nearer = ("–" if each is None else str(each) for each in found.nearer.values())
    table.add_row("nearer to 0.5", *nearer)
    return table


def draw_movement(found: Movement, path: Path, *, title: str = "") -> None:
    """Draws both means over rounds with their intervals over runs, as a PNG at `path`."""
    figure = Figure(figsize=(8.0, 4.5), dpi=DPI, layout="constrained")
    axes: Axes = figure.subplots()
    for kind, colour in zip(KINDS, (BLUE, RED), strict=True):
        points = [(at, mean) for at, mean in zip(found.rounds, found.means[kind], strict=True) if mean is not None]
        if not points:
            continue
        at, means = zip(*points, strict=True)
        axes.plot(at, [mean.value for mean in means], color=colour, marker="o", markersize=4, label=kind)
        if all(mean.runs > 1 for mean in means):
            low, high = [mean.low for mean in means], [mean.high for mean in means]
            axes.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.axhline(SOUGHT, color=BLACK, linewidth=1.0)
    axes.set(title=title.replace("$", r"\$"), xlabel="round", ylabel="mean success of written tasks", ylim=(0.0, 1.0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=8)
    save_picture(figure, path)
