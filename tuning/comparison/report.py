"""The report of a comparison: everything that its folder holds beside the trials, written from their run folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seal_ray.report.files import replace_file
from tuning.comparison.collect import Comparison, collect
from tuning.comparison.efficiency import EFFICIENCY, counts_tasks, efficiency_lines
from tuning.comparison.exams import exam_lines
from tuning.comparison.findings import gain_lines, regression_lines, threshold_lines, turn_lines, verdicts
from tuning.comparison.measures import AREA, FINAL, HINT_OFF, Measure, categories_in, in_category
from tuning.comparison.pictures import draw_efficiency, draw_labels, draw_success
from tuning.comparison.results import results_of
from tuning.comparison.table import table_of
from tuning.comparison.texts import cell, counted, markdown_table, shown, shown_difference
from tuning.comparison.timeline import timeline_as_markdown
from tuning.recipe import other_places
from tuning.record import State, write_csv

TABLE, REPORT, CURVES, LABELS, INTERFACES = "table.csv", "report.md", "curves.png", "labels.png", "interfaces.md"
"""Names of the files that are written."""


def write_results(out: Path) -> Comparison:
    """Writes table, report, pictures and timeline of a comparison as it stands, in the place of any written before.

    Needs nothing but the folder. Raises `UserError` where it holds no comparison.
    """
    comparison = collect(out)
    write_csv(out / TABLE, table_of(comparison))
    draw_success(comparison, out / CURVES)
    draw_labels(comparison, out / LABELS)
    if counts_tasks(comparison):
        draw_efficiency(comparison, out / EFFICIENCY)
    replace_file(out / INTERFACES, timeline_as_markdown(comparison).encode("utf-8"))
    replace_file(out / REPORT, report_as_markdown(comparison).encode("utf-8"))
    return comparison


def report_as_markdown(comparison: Comparison) -> str:
    """The report, in Markdown."""
    manifest = comparison.manifest
    arms, finished = list(manifest.arms), [each for each in comparison.trials if each.state is State.FINISHED]
    head, *rows = short_table(comparison)
    up_to = "up to " if manifest.fewer_seeds else ""
    lines = [
        f"# Comparison: {', '.join(arms)}",
        "",
        f"{counted(len(arms), 'arm')} × {up_to}{counted(len(manifest.seeds), 'seed')}, "
        f"{counted(manifest.rounds, 'round')} each; "
        f"{len(finished)} of {len(comparison.trials)} trials are finished. The baseline is {manifest.baseline}.",
        "",
        *([f"Merged from {', '.join(manifest.merged)}.", ""] if manifest.merged else []),
        *_missing(comparison),
        "## Result",
        "",
        *verdicts(comparison),
        "",
        f"![evaluation success over rounds]({CURVES})",
        "",
        *markdown_table(head, rows),
        "",
        "Success in %, mean over seeds with Student's 95 % interval; n/a with one seed. **Final**: evaluation after "
        "the last round. **Area**: mean evaluation success over the rounds, by trapezoids. **Hint-off**: training "
        "rollouts on the plain interface, last quarter of the rounds. **Differences** are in points, paired by seed; "
        "their intervals are Student's, and take in both seeds and evaluation tasks (hint-off: seeds, each with tasks "
        "of its own). **Seeds only**: results by task are missing, and the choice of tasks is in no interval.",
        "",
        *gain_lines(comparison),
        *turn_lines(comparison),
        *threshold_lines(comparison),
        *efficiency_lines(comparison),
        *exam_lines(comparison),
        "## By category",
        "",
        *_category_table(comparison, FINAL),
        "",
        *_category_table(comparison, AREA),
        "",
        *regression_lines(comparison),
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
        *markdown_table(
            ["trial", "state", "rounds", "why"],
            [
                [f"[{each.name}](trials/{each.name})", each.state, str(each.rounds), cell(each.failure or "")]
                for each in comparison.trials
            ],
        ),
    ]
    return "\n".join(lines) + "\n"


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
    by_measure = [results_of(comparison, measure) for measure in (FINAL, AREA, HINT_OFF)]
    rows = [head]
    for results in zip(*by_measure, strict=True):
        arm = results[0].arm
        runs = f"{len(comparison.of(arm, State.FINISHED))} of {len(comparison.of(arm))}"
        differences = ["baseline"] * 3
        if arm != comparison.manifest.baseline:
            differences = [shown_difference(each) for each in results]
        rows.append([arm, runs, *(shown(each.estimate) for each in results), *differences])
    return rows


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
    elsewhere = other_places(each.config for each in comparison.trials if each.config)
    if elsewhere:
        found = (
            f"{name} " + ", ".join(f"{value} in {count}" for value, count in values.items())
            for name, values in elsewhere.items()
        )
        yield f"**Trials ran in different places**, which changes results by rounding alone: {'; '.join(found)}."
        yield ""
    names = [each.name for each in comparison.trials if each.state is State.FINISHED and not each.rows_by_task]
    if names:
        yield f"**Without results by task:** {', '.join(names)}; differences with these have intervals over seeds only."
        yield ""


def _category_table(comparison: Comparison, measure: Measure) -> list[str]:
    categories = categories_in(comparison)
    by_category = [results_of(comparison, in_category(measure, each)) for each in categories]
    rows = [
        [
            results[0].arm,
            *(
                shown(each.estimate) + ("" if each.difference is None else f"<br>{shown_difference(each)}")
                for each in results
            ),
        ]
        for results in zip(*by_category, strict=True)
    ]
    return markdown_table([f"{measure.name} %, difference below", *categories], rows)


def _arms(comparison: Comparison) -> list[str]:
    """What each arm is, and the settings in which arms differ."""
    manifest = comparison.manifest
    lines = [f"* **{arm}**: {about or 'settings of its own'}" for arm, about in manifest.arms.items()]
    configs = {arm: next((each.config for each in comparison.of(arm) if each.config), {}) for arm in manifest.arms}
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
    rows = [[f"`{name}`", *(cell(str(values.get(arm))) for arm in configs)] for name, values in differing.items()]
    return [*lines, "", "All settings in which they differ:", "", *markdown_table(["setting", *configs], rows)]
