"""The report of a comparison: table, text, pictures and timeline, written from the run folders of its trials."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from envs.interface import Interface, interface_diff
from envs.interface.json_form import interface_from_dict
from seal_ray.report.files import Row, replace_file
from seal_ray.statistics import Estimate
from tuning.comparison.collect import ArmTrial, Comparison, collect
from tuning.comparison.exact import all_or_nothing, exact_lines
from tuning.comparison.findings import (
    EFFICIENCY,
    cell,
    counted,
    efficiency_lines,
    exam_lines,
    exam_measures,
    gain_lines,
    markdown_table,
    regression_lines,
    section,
    shown,
    shown_difference,
    shown_with_difference,
    threshold_lines,
    turn_lines,
    verdicts,
)
from tuning.comparison.measures import (
    AREA,
    FINAL,
    GAIN,
    GUIDED,
    HINT_OFF,
    SHARE,
    TURNS,
    TURNS_GAIN,
    Measure,
    categories_in,
    in_category,
    results_by_arm,
    token_budget,
    value_of,
)
from tuning.comparison.page import write_page
from tuning.comparison.pictures import draw_efficiency, draw_labels, draw_success
from tuning.comparison.preregistration import preregistered_lines
from tuning.comparison.threshold import Threshold, counts_tasks, threshold_of
from tuning.recipe import place_differences
from tuning.record import State, write_csv

COLUMNS = (
    *("arm", "seed", "state", "rounds", "measure", "value", "low", "high", "given_seeds_low", "given_seeds_high"),
    *("seeds", "difference", "difference_low", "difference_high"),
    *("difference_given_seeds_low", "difference_given_seeds_high", "pairs", "tasks", "p", "p_holm", "censored"),
    *("p_exact", "p_exact_holm"),
)
"""A trial's rows have its seed and value. An arm's rows have the seed "all": the mean over its finished trials with its
interval, and the paired difference to the baseline with its interval, which includes the sampling of so many `tasks`
(0: over seeds alone), its p-value, and that after Holm's correction for the number of arms. `given_seeds` intervals are
over tasks alone. `censored` counts trials that never reached the threshold. `p_exact` is of the sign-flip test over
seeds, or of Fisher's test of the runs that learnt. Missing values are empty."""


def measures_of(comparison: Comparison) -> list[Measure]:
    """Every measure, in the order of the table."""
    threshold, categories = threshold_of(comparison), categories_in(comparison)
    times: list[Measure] = []
    if threshold is not None:
        times = [threshold.learnt, *threshold.counted_times(comparison)]
        times += [threshold.times["tasks"]] if counts_tasks(comparison) else []
    by_category = (in_category(whole, category) for whole in (FINAL, AREA) for category in categories)
    return [FINAL, AREA, HINT_OFF, GAIN, GUIDED, TURNS, TURNS_GAIN, *times, *exam_measures(comparison), *by_category]


def table_of(comparison: Comparison) -> Iterator[Sequence[object]]:
    """The columns, then a row for every trial and measure, and for every arm and measure."""
    yield COLUMNS
    measures, threshold = measures_of(comparison), threshold_of(comparison)
    for trial in comparison.trials:
        for measure in measures:
            value = value_of(trial, measure)
            row = (trial.arm, trial.seed, trial.state, trial.rounds, measure.name, _number(value))
            yield *row, *[""] * (len(COLUMNS) - len(row) - 3), _censored(threshold, measure, [trial]), "", ""
    for results in results_by_arm(comparison, *measures):
        arm = results[0].arm
        finished = comparison.arm_trials(arm, State.FINISHED)
        state = f"{len(finished)} of {len(comparison.arm_trials(arm))} finished"
        for result in results:
            tests: Sequence[object] = ("", "", "")
            if (difference := result.difference) is not None:
                tests = (difference.tasks, _number(difference.p), _number(result.adjusted_p))
            censored = _censored(threshold, result.measure, finished)
            exact = (_number(result.exact_p), _number(result.adjusted_exact_p))
            cells = [*_cells(result.estimate), *_cells(difference), *tests, censored, *exact]
            yield arm, "all", state, comparison.manifest.rounds, result.measure.name, *cells


def _censored(threshold: Threshold | None, measure: Measure, trials: Sequence[ArmTrial]) -> object:
    """For a time to the threshold, the number of trials that never reached it."""
    if threshold is None or measure.unit == SHARE or not any(trial.state is State.FINISHED for trial in trials):
        return ""
    return sum(map(threshold.is_censored, trials))


def _cells(estimate: Estimate | None) -> list[object]:
    if estimate is None:
        return ["", "", "", "", "", 0]
    bounds = (estimate.low, estimate.high, *(estimate.given_seeds or (None, None)))
    return [_number(estimate.mean), *map(_number, bounds), estimate.count]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"


Change = tuple[int, tuple[str, ...]]
"""A round, and the changes of the interfaces from then on, as lines."""


def timeline_as_markdown(comparison: Comparison) -> str:
    """The timelines of all arms in Markdown. Seeds with equal timelines share one."""
    lines = ["# Interfaces by round", ""]
    lines += ["Differences to the interfaces before; the first is the plain interface.", ""]
    for arm, about in comparison.manifest.arms.items():
        lines += [f"## {arm}", "", *([about, ""] if about else [])]
        names_of: dict[tuple[Change, ...], list[str]] = {}
        for trial in comparison.arm_trials(arm):
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
    """The rounds in which the interfaces other than the plain one changed, with the changes."""
    changes: list[Change] = []
    before: tuple[Interface, ...] = ()
    for row in rows:
        documents = (
            {key: value for key, value in each.items() if key not in ("number", "id")} for each in row["interfaces"]
        )
        shown = tuple(each for each in map(interface_from_dict, documents) if each != Interface.plain())
        if shown != before:
            changes.append((row["round"], tuple(_differences(before, shown))))
            before = shown
    return tuple(changes)


def _differences(before: Sequence[Interface], after: Sequence[Interface]) -> Iterator[str]:
    for place, interface in enumerate(after or (Interface.plain(),)):
        if len(after) > 1:
            yield f"@@ interface {place + 1} of {len(after)} @@"
        old = before[place] if place < len(before) else before[0] if before else Interface.plain()
        yield from interface_diff(old, interface) or ("  unchanged",)


TABLE, REPORT, CURVES, LABELS, INTERFACES = "table.csv", "report.md", "curves.png", "labels.png", "interfaces.md"

_LEGEND = (
    "Success in %, mean over seeds with Student's 95 % interval; n/a with one seed. **Final**: evaluation after "
    "the last round. **Area**: mean evaluation success over the rounds, by trapezoids. **Hint-off**: training "
    "rollouts on the plain interface, last quarter of the rounds. **Differences** are in points, paired by seed; "
    "their intervals are Student's, over both seeds and evaluation tasks, by category (hint-off: seeds, which "
    "differ in tasks). **Seeds only**: results by task are missing, and no interval includes the choice of tasks."
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
    write_page(comparison, table=short_table(comparison), settings=differing_settings(comparison), legend=_LEGEND)
    replace_file(out / REPORT, report_as_markdown(comparison).encode("utf-8"))
    return comparison


def report_as_markdown(comparison: Comparison) -> str:
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
            *_budgets(comparison),
        ),
        *preregistered_lines(comparison, measures_of(comparison)),
        *section(
            "## Result",
            [*verdicts(comparison), *all_or_nothing(comparison)],
            f"![evaluation success over rounds]({CURVES})",
            markdown_table(head, rows),
            _LEGEND,
        ),
        *gain_lines(comparison),
        *exact_lines(comparison),
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


def _budgets(comparison: Comparison) -> Iterator[str]:
    """Names the tokens at which each arm and the baseline are compared."""
    budgets = {arm: token_budget(comparison, arm) for arm in comparison.manifest.arms}
    if texts := [f"{arm} {budget:,.0f}" for arm, budget in budgets.items() if budget is not None]:
        yield (
            "**Equal sampled tokens:** success of an arm and of the baseline is read at the tokens that all their runs "
            f"sampled, between evaluations in a straight line: {', '.join(texts)}."
        )


def _category_table(comparison: Comparison, measure: Measure) -> list[str]:
    categories = categories_in(comparison)
    results = results_by_arm(comparison, *(in_category(measure, category) for category in categories))
    rows = [[by_category[0].arm, *map(shown_with_difference, by_category)] for by_category in results]
    return markdown_table([f"{measure.name} %, difference below", *categories], rows)


def _arms(comparison: Comparison) -> list[str]:
    """The description of each arm, and the settings in which arms differ."""
    arms = comparison.manifest.arms
    lines = [f"* **{arm}**: {about or 'custom settings'}" for arm, about in arms.items()]
    head, *rows = differing_settings(comparison)
    if not rows:
        return lines
    rows = [[f"`{name}`", *map(cell, values)] for name, *values in rows]
    return [*lines, "", "All settings in which they differ:", "", *markdown_table(head, rows)]


def differing_settings(comparison: Comparison) -> list[list[str]]:
    """The settings in which arms differ, with the value of each arm, head first."""
    arms = comparison.manifest.arms
    configs = {arm: next((each.config for each in comparison.arm_trials(arm) if each.config), {}) for arm in arms}
    names = dict.fromkeys(
        (group, key)
        for config in configs.values()
        for group, values in config.items()
        if isinstance(values, dict)
        for key in values
    )
    rows = [["setting", *configs]]
    for group, key in names:
        values = [str((config.get(group) or {}).get(key)) for config in configs.values()]
        if len(set(values)) > 1:
            rows.append([f"{group}.{key}", *values])
    return rows
