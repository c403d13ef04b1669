"""The report of a comparison: everything that its folder holds beside the trials, written from their run folders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.interface import Interface, interface_diff
from envs.interface.document import interface_from_dict
from seal_ray.report.drawing import Row
from seal_ray.report.files import replace_file
from tuning.comparison.collect import Comparison, collect
from tuning.comparison.measures import AREA, FINAL, HINT_OFF, Measure, arm_result, categories_in, in_category, table_of
from tuning.comparison.pictures import draw_labels, draw_success
from tuning.record import State, write_csv
from tuning.statistics import Estimate, remark

TABLE, REPORT, CURVES, LABELS, INTERFACES = "table.csv", "report.md", "curves.png", "labels.png", "interfaces.md"
"""Names of the files that are written."""

Change = tuple[int, tuple[str, ...]]
"""A round, and what was shown from then on: lines of differences."""


def write_results(out: Path) -> Comparison:
    """Writes table, report, pictures and timeline of a comparison as it stands, in the place of any written before.

    Needs nothing but the folder. Raises `UserError` where it holds no comparison.
    """
    comparison = collect(out)
    write_csv(out / TABLE, table_of(comparison))
    draw_success(comparison, out / CURVES)
    draw_labels(comparison, out / LABELS)
    replace_file(out / INTERFACES, timeline_as_markdown(comparison).encode("utf-8"))
    replace_file(out / REPORT, report_as_markdown(comparison).encode("utf-8"))
    return comparison


def report_as_markdown(comparison: Comparison) -> str:
    """The report, in Markdown."""
    manifest = comparison.manifest
    arms, finished = list(manifest.arms), [each for each in comparison.trials if each.state is State.FINISHED]
    head, *rows = short_table(comparison)
    lines = [
        f"# Comparison: {', '.join(arms)}",
        "",
        f"{counted(len(arms), 'arm')} × {counted(len(manifest.seeds), 'seed')}, "
        f"{counted(manifest.rounds, 'round')} each; "
        f"{len(finished)} of {len(comparison.trials)} trials are finished. The baseline is {manifest.baseline}.",
        "",
        *_missing(comparison),
        "## Result",
        "",
        *_verdicts(comparison),
        "",
        f"![evaluation success over rounds]({CURVES})",
        "",
        *_markdown_table(head, rows),
        "",
        "Success in %, mean over seeds with Student's 95 % interval; n/a with one seed. **Final**: evaluation after "
        "the last round. **Area**: mean evaluation success over the rounds, by trapezoids. **Hint-off**: training "
        "rollouts on the plain interface, last quarter of the rounds. **Differences** are in points, paired by seed, "
        "with a percentile bootstrap interval over the pairs.",
        "",
        "## By category",
        "",
        *_category_table(comparison, FINAL),
        "",
        *_category_table(comparison, AREA),
        "",
        "## What turns show",
        "",
        f"![label shares over rounds]({LABELS})",
        "",
        f"What each curator showed when is in [{INTERFACES}]({INTERFACES}), every number in [{TABLE}]({TABLE}).",
        "",
        "## Arms",
        "",
        *_arms(comparison),
        "",
        "## Trials",
        "",
        *_markdown_table(
            ["trial", "state", "rounds", "why"],
            [
                [f"[{each.name}](trials/{each.name})", each.state, str(each.rounds), _cell(each.failure or "")]
                for each in comparison.trials
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


def timeline_as_markdown(comparison: Comparison) -> str:
    """The timelines of all arms in Markdown. Seeds with one and the same timeline share it."""
    lines = ["# What the curators showed", ""]
    lines += ["Differences to what was shown before; at first that is the plain interface.", ""]
    for arm, about in comparison.manifest.arms.items():
        lines += [f"## {arm}", "", *([about, ""] if about else [])]
        names_of: dict[tuple[Change, ...], list[str]] = {}
        for trial in comparison.of(arm):
            if trial.interfaces:
                names_of.setdefault(changes_of(trial.interfaces), []).append(trial.name)
        for changes, names in names_of.items():
            lines += [f"### {', '.join(names)}", ""]
            if not changes:
                lines += ["The plain interface throughout.", ""]
            for number, difference in changes:
                lines += [f"From round {number}:", "", "```diff", *difference, "```", ""]
    return "\n".join(lines)


def changes_of(rows: Sequence[Row]) -> tuple[Change, ...]:
    """The rounds in which what was shown beside the plain interface became another, and how."""
    found: list[Change] = []
    before: tuple[Interface, ...] = ()
    for row in rows:
        documents = ({key: value for key, value in each.items() if key != "id"} for each in row["interfaces"])
        shown = tuple(each for each in map(interface_from_dict, documents) if each != Interface.plain())
        if shown != before:
            found.append((row["round"], tuple(_differences(before, shown))))
            before = shown
    return tuple(found)


def _differences(before: Sequence[Interface], after: Sequence[Interface]) -> Iterator[str]:
    for place, interface in enumerate(after or (Interface.plain(),)):
        if len(after) > 1:
            yield f"@@ interface {place + 1} of {len(after)} @@"
        old = before[place] if place < len(before) else before[0] if before else Interface.plain()
        yield from interface_diff(old, interface) or ("  unchanged",)


def short_table(comparison: Comparison) -> list[list[str]]:
    """The main table as texts, head first: what a terminal shows."""
    head = [
        "arm",
        "runs",
        "final %",
        "area %",
        "hint-off %",
        "final − baseline",
        "area − baseline",
        "hint-off − baseline",
    ]
    rows = [head]
    for arm in comparison.manifest.arms:
        results = [arm_result(comparison, arm, measure) for measure in (FINAL, AREA, HINT_OFF)]
        runs = f"{len(comparison.of(arm, State.FINISHED))} of {len(comparison.of(arm))}"
        differences = ["baseline"] * 3
        if arm != comparison.manifest.baseline:
            differences = [shown(each.difference, sign=True) for each in results]
        rows.append([arm, runs, *(shown(each.estimate) for each in results), *differences])
    return rows


def shown(estimate: Estimate | None, *, sign: bool = False) -> str:
    """An estimate of shares in percent, with its interval; "–" where there is none."""
    if estimate is None:
        return "–"
    plus = "+" if sign else ""
    if estimate.low is None or estimate.high is None:
        return f"{100 * estimate.mean:{plus}.1f} [n/a]"
    return f"{100 * estimate.mean:{plus}.1f} [{100 * estimate.low:{plus}.1f}, {100 * estimate.high:{plus}.1f}]"


def counted(number: int, noun: str) -> str:
    """A number of things in words."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _missing(comparison: Comparison) -> Iterator[str]:
    """Trials that the table lacks are named before any number."""
    for state, words in (
        (State.FAILED, "failed after retries"),
        (State.UNFINISHED, "not finished"),
        (State.NOT_STARTED, "not started"),
    ):
        names = [each.name for each in comparison.trials if each.state is state]
        if names:
            yield f"**{len(names)} {words}, and in no number below:** {', '.join(names)}."
            yield ""
    counts = {arm: len(comparison.of(arm, State.FINISHED)) for arm in comparison.manifest.arms}
    if any(each.state is State.FAILED for each in comparison.trials):
        yield "An arm whose runs fail is compared by those that survived, which can flatter it."
        yield ""
    elif len(set(counts.values())) > 1:
        yield "Arms have different numbers of finished runs; differences use the seeds that both arms finished."
        yield ""


def _verdicts(comparison: Comparison) -> Iterator[str]:
    baseline = comparison.manifest.baseline
    others = [arm for arm in comparison.manifest.arms if arm != baseline]
    pairs = []
    for arm in others:
        found = arm_result(comparison, arm, FINAL).difference
        if found is None:
            yield f"* **{arm}** and {baseline} have no finished seed in common yet."
            continue
        pairs.append(found.count)
        over = f"of final success over {counted(found.count, 'pair')}"
        text = f"* **{arm}** − {baseline}: {shown(found, sign=True)} points {over}"
        if found.low is None or found.high is None:
            yield f"{text}; no interval from one pair."
        elif found.low <= 0 <= found.high:
            yield f"{text}; the interval holds 0, so that neither is shown to be better."
        else:
            yield f"{text}; the interval lies {'above' if found.low > 0 else 'below'} 0."
    if not others:
        yield "There is one arm, and nothing to compare it with."
    note = remark(min(pairs)) if pairs else None
    if note:
        yield ""
        yield note
    if len(pairs) > 1:
        yield ""
        yield f"{len(pairs)} arms are each held against the baseline, with no correction for their number."


def _category_table(comparison: Comparison, measure: Measure) -> list[str]:
    rows, categories = [], categories_in(comparison)
    for arm in comparison.manifest.arms:
        results = [arm_result(comparison, arm, in_category(measure, each)) for each in categories]
        rows.append(
            [
                arm,
                *(
                    shown(each.estimate)
                    + ("" if each.difference is None else f"<br>{shown(each.difference, sign=True)}")
                    for each in results
                ),
            ]
        )
    return _markdown_table([f"{measure.name} %, difference below", *categories], rows)


def _arms(comparison: Comparison) -> list[str]:
    """What each arm is, and the settings in which arms differ."""
    lines = [f"* **{arm}**: {about or 'settings of its own'}" for arm, about in comparison.manifest.arms.items()]
    configs = {arm: next(iter(comparison.of(arm))).config for arm in comparison.manifest.arms}
    settings = {
        f"{section}.{key}": {
            arm: (config.get(section) or {}).get(key) for arm, config in configs.items() if isinstance(config, dict)
        }
        for config in configs.values()
        for section, keys in config.items()
        if isinstance(keys, dict)
        for key in keys
    }
    differing = {name: values for name, values in settings.items() if len({str(each) for each in values.values()}) > 1}
    if not differing:
        return lines
    rows = [[f"`{name}`", *(_cell(str(values.get(arm))) for arm in configs)] for name, values in differing.items()]
    return [*lines, "", "All settings in which they differ:", "", *_markdown_table(["setting", *configs], rows)]


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
