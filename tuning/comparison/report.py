"""The report of a comparison: table, text, pictures and timeline, written from the run folders of its trials."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from seal_ray.report.files import replace_file
from tuning.comparison.collect import Comparison, collect
from tuning.comparison.exams import exam_lines
from tuning.comparison.findings import (
    EFFICIENCY,
    efficiency_lines,
    gain_lines,
    regression_lines,
    threshold_lines,
    turn_lines,
    verdicts,
)
from tuning.comparison.measures import AREA, FINAL, HINT_OFF, Measure, categories_in, in_category
from tuning.comparison.pictures import draw_efficiency, draw_labels, draw_success
from tuning.comparison.results import results_by_arm
from tuning.comparison.table import table_of
from tuning.comparison.texts import (
    cell,
    counted,
    markdown_table,
    section,
    shown,
    shown_difference,
    shown_with_difference,
)
from tuning.comparison.threshold import counts_tasks
from tuning.comparison.timeline import timeline_as_markdown
from tuning.recipe import place_differences
from tuning.record import State, write_csv

TABLE, REPORT, CURVES, LABELS, INTERFACES = "table.csv", "report.md", "curves.png", "labels.png", "interfaces.md"
"""Names of the files that are written."""

_LEGEND = (
    "Success in %, mean over seeds with Student's 95 % interval; n/a with one seed. **Final**: evaluation after "
    "the last round. **Area**: mean evaluation success over the rounds, by trapezoids. **Hint-off**: training "
    "rollouts on the plain interface, last quarter of the rounds. **Differences** are in points, paired by seed; "
    "their intervals are Student's, over both seeds and evaluation tasks (hint-off: seeds, which differ in "
    "tasks). **Seeds only**: results by task are missing, and no interval includes the choice of tasks."
)


def write_results(out: Path) -> Comparison:
    """Writes the files of a comparison, finished or not. Raises `UserError` if the folder holds none."""
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
    arms, finished = list(manifest.arms), [trial for trial in comparison.trials if trial.state is State.FINISHED]
    head, *rows = short_table(comparison)
    up_to = "up to " if manifest.fewer_seeds else ""
    trials = [
        [f"[{trial.name}](trials/{trial.name})", trial.state, str(trial.rounds), cell(trial.failure or "")]
        for trial in comparison.trials
    ]
    lines = [
        *section(
            f"# Comparison: {', '.join(arms)}",
            f"{counted(len(arms), 'arm')} × {up_to}{counted(len(manifest.seeds), 'seed')}, "
            f"{counted(manifest.rounds, 'round')} each; "
            f"{len(finished)} of {len(comparison.trials)} trials are finished. The baseline is {manifest.baseline}.",
            *([f"Merged from {', '.join(manifest.merged)}."] if manifest.merged else []),
            *_missing(comparison),
        ),
        *section(
            "## Result",
            list(verdicts(comparison)),
            f"![evaluation success over rounds]({CURVES})",
            markdown_table(head, rows),
            _LEGEND,
        ),
        *gain_lines(comparison),
        *turn_lines(comparison),
        *threshold_lines(comparison),
        *efficiency_lines(comparison),
        *exam_lines(comparison),
        *section(
            "## By category",
            _category_table(comparison, FINAL),
            _category_table(comparison, AREA),
            list(regression_lines(comparison)),
        ),
        *section(
            "## Labels of turns",
            f"![label shares over rounds]({LABELS})",
            f"Interfaces by round are in [{INTERFACES}]({INTERFACES}), all numbers in [{TABLE}]({TABLE}).",
        ),
        *section("## Arms", _arms(comparison)),
        *section("## Trials", markdown_table(["trial", "state", "rounds", "why"], trials)),
    ]
    return "\n".join(lines)


def short_table(comparison: Comparison) -> list[list[str]]:
    """The main table as texts, head first, for the report and the terminal."""
    names = ("final", "area", "hint-off")
    rows = [["arm", "runs", *(f"{name} %" for name in names), *(f"{name} − baseline" for name in names)]]
    for results in results_by_arm(comparison, FINAL, AREA, HINT_OFF):
        arm = results[0].arm
        runs = f"{len(comparison.arm_trials(arm, State.FINISHED))} of {len(comparison.arm_trials(arm))}"
        rows.append([arm, runs, *(shown(result.estimate) for result in results), *map(shown_difference, results)])
    return rows


def _missing(comparison: Comparison) -> Iterator[str]:
    """Names the trials that the table lacks, before any number."""
    trials, arms = comparison.trials, comparison.manifest.arms
    words = {
        State.FAILED: "failed after retries",
        State.UNFINISHED: "not finished",
        State.NOT_STARTED: "not started",
    }
    for state, text in words.items():
        if names := [trial.name for trial in trials if trial.state is state]:
            yield f"**{len(names)} {text}, and in no number below:** {', '.join(names)}."
    if any(trial.state is State.FAILED for trial in trials):
        yield "An arm whose runs fail is compared by those that survived, which can flatter it."
    elif len({len(comparison.arm_trials(arm, State.FINISHED)) for arm in arms}) > 1:
        yield "Arms have different numbers of finished runs; differences use the seeds that both arms finished."
    if places := place_differences(trial.config for trial in trials if trial.config):
        texts = (
            f"{name} " + ", ".join(f"{value} in {count}" for value, count in values.items())
            for name, values in places.items()
        )
        yield f"**Trials ran in different places**, which changes results by rounding alone: {'; '.join(texts)}."
    if names := [trial.name for trial in trials if trial.state is State.FINISHED and not trial.rows_by_task]:
        yield f"**Without results by task:** {', '.join(names)}; differences with these have intervals over seeds only."


def _category_table(comparison: Comparison, measure: Measure) -> list[str]:
    categories = categories_in(comparison)
    results = results_by_arm(comparison, *(in_category(measure, category) for category in categories))
    rows = [[by_category[0].arm, *map(shown_with_difference, by_category)] for by_category in results]
    return markdown_table([f"{measure.name} %, difference below", *categories], rows)


def _arms(comparison: Comparison) -> list[str]:
    """The description of each arm, and the settings in which arms differ."""
    arms = comparison.manifest.arms
    lines = [f"* **{arm}**: {about or 'custom settings'}" for arm, about in arms.items()]
    configs = {arm: next((each.config for each in comparison.arm_trials(arm) if each.config), {}) for arm in arms}
    names = dict.fromkeys(
        (group, key)
        for config in configs.values()
        for group, values in config.items()
        if isinstance(values, dict)
        for key in values
    )
    rows = []
    for group, key in names:
        values = [str((config.get(group) or {}).get(key)) for config in configs.values()]
        if len(set(values)) > 1:
            rows.append([f"`{group}.{key}`", *map(cell, values)])
    if not rows:
        return lines
    return [*lines, "", "All settings in which they differ:", "", *markdown_table(["setting", *configs], rows)]
