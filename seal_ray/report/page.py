"""The page of a run, `report.html`: one file without scripts, which opens without a server or a network.

Models have written texts on it: the template escapes every value, and `visible` spells control characters.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib as mpl
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from envs.diagnosis import Label
from envs.text import visible
from seal_ray.report.arms import ArmWindow, History, draw_gains, histories
from seal_ray.report.chats import ChatPair, GuidedGroups, chats_with_outcomes, guided_groups, pairs_of, shortened
from seal_ray.report.files import Row, RunFolder, replace_file
from seal_ray.report.pictures import MORE_PANELS, PANELS, finish, latest_rows
from seal_ray.report.pool import POOL_PANELS, PoolWindow, draw_spread, read_pool

_INK = "#010203"
"""The colour of texts and axes in pictures, which the page replaces by its own."""
_STYLE: Any = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), "none"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    "svg.fonttype": "none",
    "font.size": 10,
    "legend.fontsize": 9,
}
_INCHES, _LEGEND_LINE = (4.6, 2.7), 0.17
_SHOWN_TASKS = 50
"""Largest number of tasks in a list."""
_SHOWN_CHATS, _SEARCHED_ROUNDS = 8, 5
"""Tasks of each kind of which a page has dialogues, and rounds in which it looks for groups with and without hints."""
_CHANGED = 3
"""Labels and categories in the summary of a window."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture as SVG, with its title for readers without sight."""

    title: str
    svg: str


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """A window of the curator: its arms with statistics, the rejected proposals, and what changed since the one before.

    `changes` are (name, points) of labels and categories, the largest first.
    """

    round: int
    arms: Sequence[ArmWindow]
    rejections: Sequence[tuple[str, str]]
    changes: Sequence[tuple[str, float]]

    @property
    def rows(self) -> Iterator[tuple[str, ...]]:
        """Each arm: its name and place, what it shows, its success, and its gain with interval."""
        for arm in self.arms:
            place = ", promoted" if arm.promoted else ", in force before" if arm.incumbent else ""
            success = "–" if arm.success is None else f"{100 * arm.success:.1f} % of {arm.rollouts}"
            gain = "–"
            if arm.gain is not None and arm.error:
                gain = "{:+.2f} ({:+.2f} to {:+.2f})".format(arm.gain, *arm.interval)
            yield arm.id + place, arm.shows, success, gain


def write_page(folder: RunFolder) -> None:
    """Writes `report.html` from the files of a run so far, atomically."""
    rows = latest_rows(folder.metrics.rows())
    config = folder.read_config()
    has_curator = bool(folder.arms.lines()) and config["curator"]["kind"] != "none"
    arms = histories(folder.path) if has_curator else []
    evaluations = folder.evaluations.rows()
    flips = flipped_tasks(evaluations)
    write_html(
        folder.page,
        __package__,
        name=folder.path.resolve().name,
        config=config,
        rows=rows,
        pictures=[drawn_picture(title, draw, rows) for title, draw in {**PANELS, **MORE_PANELS}.items()],
        success=[row for row in rows if "evaluation/success" in row],
        gains=[drawn_picture("Gain over the plain interface", draw_gains, arms, rows=rows)] if arms else [],
        pool=list(_pool_pictures(read_pool(folder.path), rows)) if folder.pool.lines() else [],
        windows=list(window_summaries(arms, folder.proposals.rows(), rows)),
        events=list(events(rows, arms)),
        flips=flips,
        changed=changed_dialogues(folder, evaluations, flips),
        guided=last_guided_groups(folder, rows),
        most=_SHOWN_TASKS,
    )


def write_html(path: Path, package: str, *, name: str, **values: Any) -> None:
    """Writes a page, atomically, from `page.html.jinja` of a package, which extends `base.html.jinja` of this one."""
    page = _template(package).render(name=visible(name), **values)
    replace_file(path, page.encode())


@cache
def _template(package: str) -> Template:
    """The template of a package, compiled once in a process."""
    loader = ChoiceLoader([PackageLoader(package, "."), PackageLoader(__package__, ".")])
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = lambda share: f"{100 * share:.1f} %"
    environment.filters["visible"] = lambda text: visible(shortened(text))
    environment.filters["lines"] = lambda text: "\n".join(map(visible, text.split("\n")))
    return environment.get_template("page.html.jinja")


def drawn_picture(title: str, draw: Callable[..., None], *given: Any, rows: Sequence[Row] | None = None) -> Picture:
    """A picture by a function of axes and these values, in the colours of the page.

    Its axis of rounds has these rows, or the first value; `draw` makes its own if they are empty.
    """
    shown = given[0] if rows is None else rows
    with mpl.rc_context({**_STYLE, "svg.hashsalt": title}):
        figure = Figure(figsize=_INCHES, layout="constrained")
        axes = figure.subplots()
        draw(axes, *given)
        if shown:
            finish(axes, shown)
        if legend := axes.get_legend():
            handles: list[Any] = legend.legend_handles
            texts = [text.get_text().replace("\n", " ") for text in legend.texts]
            legend.remove()
            figure.set_size_inches(_INCHES[0], _INCHES[1] + _LEGEND_LINE * (1 + len(texts) // 2))
            figure.legend(handles, texts, loc="outside lower left", ncols=2, frameon=False)
        written = io.StringIO()
        FigureCanvasSVG(figure).print_svg(written, metadata={"Date": None, "Title": title})  # type: ignore[no-untyped-call]
    svg = written.getvalue()
    svg = svg[svg.index("<svg") :]
    for colour in ("#000000", "#666666", _INK):
        svg = svg.replace(colour, "currentColor")
    return Picture(title, svg.replace("<svg ", '<svg role="img" ', 1))


def _pool_pictures(windows: Sequence[PoolWindow], rows: Sequence[Row]) -> Iterator[Picture]:
    for title, draw in POOL_PANELS.items():
        yield drawn_picture(title, draw, windows, rows=rows)
    yield drawn_picture("Success of a task, at first and at the end", draw_spread, windows, rows=())


def window_summaries(arms: Sequence[History], proposals: Sequence[Row], rows: Sequence[Row]) -> Iterator[WindowSummary]:
    """The windows of a run's curator in their order."""
    ends: dict[int, list[ArmWindow]] = {}
    for arm in arms:
        for window in arm.windows:
            ends.setdefault(window.round, []).append(window)
    before: dict[str, float] = {}
    begin = 0
    for end in sorted(ends):
        made = [each for row in proposals if row["round"] == end for each in row["proposals"]]
        now = _means([row for row in rows if begin < row["round"] <= end])
        changes = [(name, 100 * (now[name] - before[name])) for name in now if name in before]
        changes = [(name, change) for name, change in changes if abs(change) >= 0.05]
        rejected = [
            ("; ".join(each.get("guidelines", ())), str(each["rejection"])) for each in made if each.get("rejection")
        ]
        yield WindowSummary(end, ends[end], rejected, sorted(changes, key=lambda each: -abs(each[1]))[:_CHANGED])
        before, begin = now, end


def _means(rows: Sequence[Row]) -> dict[str, float]:
    """The mean share of each label, and the success by category, over rounds."""
    names = {f"diagnosis/share/{label}": str(label) for label in Label}
    names |= {
        name: name.removeprefix("solver/success/") for row in rows for name in row if name.startswith("solver/success/")
    }
    values = {shown: [row[name] for row in rows if row.get(name) is not None] for name, shown in names.items()}
    return {shown: sum(each) / len(each) for shown, each in values.items() if each}


def events(rows: Sequence[Row], arms: Sequence[History]) -> Iterator[tuple[int, str]]:
    """(round, text) of promotions, restarts and faults, in the order of their rounds."""
    found = [(number, f"{arm.id} became the interface in force") for arm in arms for number in arm.promoted_at]
    before: Row = {}
    for row in rows:
        for name, text in (("engine", "engine restarts"), ("runner", "env runner restarts")):
            more = (row.get(f"perf/{name}_restarts") or 0) - (before.get(f"perf/{name}_restarts") or 0)
            if more > 0:
                found.append((row["round"], f"{text}: {more:g}"))
        if faults := row.get("diagnosis/faults"):
            found.append((row["round"], f"dialogues lost to faults: {faults:g}"))
        before = row
    yield from sorted(found, key=lambda event: event[0])


def flipped_tasks(evaluations: Sequence[Row]) -> dict[str, list[tuple[str, str]]]:
    """Tasks whose outcome changed from the first evaluation to the last: `solved` and `lost`, as (category, task)."""
    flips: dict[str, list[tuple[str, str]]] = {"solved": [], "lost": []}
    if len(evaluations) > 1:
        first, last = evaluations[0]["suites"], evaluations[-1]["suites"]
        for suite, categories in last.items():
            for category, tasks in categories.items():
                for task, outcome in tasks.items():
                    was = first.get(suite, {}).get(category, {}).get(task)
                    if outcome is not None and was is not None and outcome != was:
                        flips["solved" if outcome > was else "lost"].append((category, task))
    return flips


def changed_dialogues(
    folder: RunFolder, evaluations: Sequence[Row], flips: Mapping[str, Sequence[tuple[str, str]]]
) -> list[ChatPair]:
    """Dialogues before and after training of the first flipped tasks of both kinds."""
    better = {task: kind == "solved" for kind, tasks in flips.items() for _, task in tasks[:_SHOWN_CHATS]}
    if not better:
        return []
    before, after = (evaluations[place]["round"] for place in (0, -1))
    first, last = (
        chats_with_outcomes(folder.log_of("evaluation", number), outcomes, f"round {number}", ".", number)
        for number, outcomes in ((before, {task: not kind for task, kind in better.items()}), (after, better))
    )
    return pairs_of(first, last, better)


def last_guided_groups(folder: RunFolder, rows: Sequence[Row]) -> GuidedGroups | None:
    """The last round in which the same task was played with and without hints; None without such a round."""
    shown = [row["round"] for row in rows if row.get("solver/success_shown") is not None]
    logs = {number: folder.log_of("round", number) for number in reversed(shown[-_SEARCHED_ROUNDS:])}
    found = (guided_groups(log, number) for number, log in logs.items() if log.is_file())
    return next(filter(None, found), None)
