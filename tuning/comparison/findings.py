"""The findings of a comparison in words and tables: which arm is better, how early, where it is worse; and exams."""

from collections.abc import Iterator, Sequence

from envs.errors import UserError
from envs.task import sorted_categories
from seal_ray.statistics import LEVEL, Estimate, mean_estimate, remark
from tuning.comparison.collect import ArmTrial, Comparison
from tuning.comparison.measures import (
    FINAL,
    GAIN,
    GUIDED,
    SHARE,
    TURNS,
    TURNS_GAIN,
    ArmResult,
    Measure,
    regressions,
    results_by_arm,
    results_of,
    value_of,
)
from tuning.comparison.threshold import Cost, Threshold, counts_tasks, rollouts_until, tasks_until, threshold_of
from tuning.record import State

_DIGITS = {SHARE: 1, "rounds": 1}
"""Unit → digits after the decimal point, if any."""


def shown(estimate: Estimate | None, *, unit: str = SHARE, sign: bool = False, given_seeds: bool = False) -> str:
    """An estimate with its interval, or the one over tasks alone, shares in percent; "–" if there is none."""
    if estimate is None:
        return "–"
    bounds = (estimate.given_seeds or (None, None)) if given_seeds else (estimate.low, estimate.high)
    scale, form = 100 if unit == SHARE else 1, f"{'+' if sign else ''}.{_DIGITS.get(unit, 0)}f"
    interval = ", ".join("n/a" if bound is None else f"{scale * bound:{form}}" for bound in bounds)
    return f"{scale * estimate.mean:{form}} [{'n/a' if None in bounds else interval}]"


def shown_difference(result: ArmResult) -> str:
    """The difference to the baseline, marked if its interval should include tasks and does not."""
    if result.is_baseline:
        return "baseline"
    difference, measure = result.difference, result.measure
    text = shown(difference, unit=measure.unit, sign=True)
    over_seeds = difference is not None and difference.low is not None and measure.by_task and not difference.tasks
    return f"{text} seeds only" if over_seeds else text


def shown_with_difference(result: ArmResult) -> str:
    """A cell with the estimate and, below it, the difference to the baseline."""
    return shown(result.estimate) + ("" if result.difference is None else f"<br>{shown_difference(result)}")


def shown_p(result: ArmResult) -> str:
    """The p-value of the exact test, in brackets after Holm's correction."""
    if result.exact_p is None or result.adjusted_exact_p is None:
        return "baseline" if result.is_baseline else "–"
    return f"{result.exact_p:.2g} ({result.adjusted_exact_p:.2g})"


def shown_number(value: float | None) -> str:
    """A whole number; "–" if there is none."""
    return "–" if value is None else f"{value:.0f}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def section(title: str, *blocks: str | Sequence[str]) -> list[str]:
    """The lines of a section: its title, and blocks of one or more lines, all followed by an empty line."""
    lines = [title, ""]
    for block in blocks:
        lines += [*([block] if isinstance(block, str) else block), ""]
    return lines


def cell(text: str) -> str:
    """A text without the characters that end a cell."""
    return text.replace("|", "\\|").replace("\n", " ")


EFFICIENCY = "efficiency.png"


def verdicts(comparison: Comparison) -> Iterator[str]:
    """Each arm's difference in final success, and how far to trust it."""
    others = [result for result in results_of(comparison, FINAL) if not result.is_baseline]
    for result in others:
        yield _verdict(result, comparison.manifest.baseline)
    if not others:
        yield "There is one arm, and nothing to compare it with."
    pairs = [result.difference.count for result in others if result.difference is not None]
    note = remark(min(pairs)) if pairs else None
    if note:
        yield ""
        yield note
    if len(pairs) > 1:
        yield ""
        yield (
            f"{len(pairs)} arms are compared with the baseline: Holm's correction of p-values is for this number, in "
            "each measure and test separately; intervals are not corrected."
        )


def _verdict(result: ArmResult, baseline: str) -> str:
    difference = result.difference
    if difference is None:
        return f"* **{result.arm}** and {baseline} have no finished seed in common yet."
    tasks = f" and {counted(difference.tasks, 'task')}" if difference.tasks else ""
    text = (
        f"* **{result.arm}** − {baseline}: {shown(difference, sign=True)} points of final success over "
        f"{counted(difference.count, 'pair')}{tasks}"
    )
    if difference.low is None or difference.high is None:
        return f"{text}; no interval from one pair."
    if not difference.tasks:
        text += ", seeds only"
    if difference.p is None or result.adjusted_p is None:
        return f"{text}; all differences are equal, so there is no test."
    tests = f"p = {difference.p:.2g}, {result.adjusted_p:.2g} after Holm's correction"
    if result.exact_p is not None and result.adjusted_exact_p is not None:
        tests += f"; sign-flip p = {result.exact_p:.2g}, {result.adjusted_exact_p:.2g}"
    if difference.low <= 0 <= difference.high:
        return f"{text}; the interval contains 0: no evidence that either is better ({tests})."
    side = f"the interval lies {'above' if difference.low > 0 else 'below'} 0"
    if result.adjusted_p > 1 - LEVEL:
        return f"{text}; {side}, but for the number of arms that is not enough ({tests})."
    return f"{text}; {side} ({tests})."


def gain_lines(comparison: Comparison) -> list[str]:
    """The section on guidance, the gain by training, and these trials alone; empty if nothing was measured."""
    results = list(results_by_arm(comparison, GAIN, FINAL, GUIDED))
    if not any(gain.estimate or guided.estimate for gain, _, guided in results):
        return []
    alone = f"final − {comparison.manifest.baseline}, these trials alone"
    rows = [
        [
            gain.arm,
            shown(guided.estimate, sign=True),
            shown(gain.estimate, sign=True),
            shown(gain.estimate, sign=True, given_seeds=True),
            "baseline" if final.is_baseline else shown(final.difference, sign=True, given_seeds=True),
        ]
        for gain, final, guided in results
    ]
    return section(
        "## What training did",
        markdown_table(["arm", "guided − plain", "gain", "gain, these trials alone", alone], rows),
        "**Guided − plain**: success with minus without hints in training, in points, mean of the rounds. If it is not "
        "above 0, there is nothing to internalise. **Gain**: success after the last round minus before training, in "
        "points, over seeds and evaluation tasks. **These trials alone**: over the tasks only. It says how well the "
        "success of these trained models is known on other tasks, and nothing about other seeds.",
    )


def turn_lines(comparison: Comparison) -> list[str]:
    """The section on single turns; empty if no evaluation counted them."""
    results = list(results_by_arm(comparison, TURNS, TURNS_GAIN))
    if not any(turns.estimate for turns, _ in results):
        return []
    rows = [
        [turns.arm, shown(turns.estimate), shown(gain.estimate, sign=True), shown_difference(turns)]
        for turns, gain in results
    ]
    return section(
        "## Turns",
        markdown_table(["arm", "turns done %", "gain", f"− {comparison.manifest.baseline}"], rows),
        "Turns of the last evaluation that passed, or in which the solver rightly called nothing, of all turns of its "
        "tasks: they separate models that rarely complete a whole dialogue. Intervals are over seeds.",
    )


def threshold_lines(comparison: Comparison) -> list[str]:
    """The section on rounds and rollouts to a threshold; empty if there is no threshold."""
    threshold = threshold_of(comparison)
    if threshold is None:
        return []
    manifest = comparison.manifest
    measures = threshold.counted_times(comparison)
    head = ["arm", "reached by"]
    for measure in measures:
        head += [f"{measure.unit}, median", f"{measure.unit}, restricted mean", "− baseline"]
    rows = []
    for results in results_by_arm(comparison, *measures):
        times = threshold.reached(comparison, results[0].arm)
        rows.append([results[0].arm, f"{times.trials - len(times.never)} of {times.trials}"])
        for result in results:
            unit = result.measure.unit
            restricted = shown(result.estimate, unit=unit)
            rows[-1] += [shown_number(times.medians[unit]), restricted, shown_difference(result)]
    never = [name for arm in manifest.arms for name in threshold.reached(comparison, arm).never]
    censored = f"**{len(never)} never reached it, and are censored at their last round:** {', '.join(never)}."
    return section(
        "## To the threshold",
        "Rounds, training rollouts and sampled tokens to the first evaluation with a success of "
        f"{100 * threshold.level:.1f} %, {threshold_source(comparison, threshold)}.",
        markdown_table(head, rows),
        *([censored] if never else []),
        "Medians are Kaplan and Meier's; – if less than half reach it. Restricted means count a trial that did not "
        "reach it with the time that all trials have, and have Student's interval over seeds. An arm that is earlier "
        "has a difference below 0.",
    )


def threshold_source(comparison: Comparison, threshold: Threshold) -> str:
    """Where the level of a threshold comes from."""
    return (
        "as given by `--threshold`" if threshold.given else f"the mean final success of {comparison.manifest.baseline}"
    )


def efficiency_lines(comparison: Comparison) -> list[str]:
    """The section on data efficiency (GenEnv, arXiv 2512.19682); empty if tasks were not counted."""
    threshold = threshold_of(comparison)
    if threshold is None or not counts_tasks(comparison):
        return []
    head = ["arm", "tasks", "rollouts", "final %", "tasks to the threshold, median", "restricted mean", "− baseline"]
    rows = [
        [
            final.arm,
            _mean_cost(comparison, final.arm, tasks_until),
            _mean_cost(comparison, final.arm, rollouts_until),
            shown(final.estimate),
            shown_number(threshold.reached(comparison, final.arm).medians["tasks"]),
            shown(tasks.estimate, unit="tasks"),
            shown_difference(tasks),
        ]
        for final, tasks in results_by_arm(comparison, FINAL, threshold.times["tasks"])
    ]
    tasks = [count for trial in comparison.trials if (count := value_of(trial, threshold.times["tasks"])) is not None]
    fewest = threshold.most["tasks"]
    never = (
        f"**No run reached it within fewer than {fewest:.0f} tasks**, as many as the run with the fewest was trained "
        "on: restricted means and their differences mean nothing here."
    )
    return section(
        "## Data efficiency",
        f"![evaluation success over different tasks and over rollouts]({EFFICIENCY})",
        markdown_table(head, rows),
        "**Tasks** are the different tasks of training rollouts, **rollouts** all rollouts, both to the end of a run, "
        f"mean over seeds. The threshold is {100 * threshold.level:.1f} % here too.",
        *([never] if tasks and min(tasks) >= fewest else []),
    )


def _mean_cost(comparison: Comparison, arm: str, cost: Cost) -> str:
    trials = comparison.arm_trials(arm, State.FINISHED)
    costs = [value for trial in trials if (value := cost(trial.rows, trial.rounds)) is not None]
    return f"{mean_estimate(costs).mean:.0f}" if costs else "n/a"


def regression_lines(comparison: Comparison) -> Iterator[str]:
    """The categories in which an arm is worse than the baseline."""
    baseline = comparison.manifest.baseline
    worse = list(regressions(comparison))
    if worse:
        yield f"**Regressions**, categories in which an arm is below {baseline} with its whole interval:"
        yield ""
        for category, result in worse:
            p = "" if result.adjusted_p is None else f"; p = {result.adjusted_p:.2g} after Holm's correction"
            measure = result.measure.name.partition("/")[0]
            yield f"* **{result.arm}**, {category}: {shown_difference(result)} points of {measure}{p}"
    elif len(comparison.manifest.arms) > 1:
        yield f"**Regressions:** in no category is an arm below {baseline} with its whole interval."
    if len(comparison.manifest.arms) > 1:
        yield ""
        yield "Categories are many, and nothing is corrected for their number."


def exam_measures(comparison: Comparison) -> list[Measure]:
    """The share of right answers in each suite that finished trials have. Raises `UserError` as `examined_suites`."""
    return [
        Measure(f"exam/{suite}", f"share of right answers in the exam {suite}", exam=suite, by_task=True)
        for suite in examined_suites(comparison.trials)
    ]


def examined_suites(trials: Sequence[ArmTrial]) -> list[str]:
    """The suites in which finished trials were examined.

    Raises:
        UserError: Trials had other items or settings than each other, or were examined before their last round.
    """
    finished = [trial for trial in trials if trial.state is State.FINISHED]
    suites = sorted_categories(suite for trial in finished for suite in trial.exams)
    for suite in suites:
        _check(suite, [trial for trial in finished if suite in trial.exams])
    return suites


def _check(suite: str, trials: Sequence[ArmTrial]) -> None:
    first, *others = trials
    for trial in trials:
        if trial.examined_round != trial.rounds:
            raise UserError(
                f"exams: {trial.name} was examined after round {trial.examined_round} and has {trial.rounds}; run its "
                "exam again with --fresh."
            )
    for trial in others:
        left, right = ({group: count for group, (_, count) in each.exams[suite].items()} for each in (first, trial))
        if left != right:
            raise UserError(
                f"exams: {first.name} and {trial.name} had other items of {suite}; give both the same --limit and "
                "--category."
            )
        settings = trial.exam_settings(suite)
        for key, value in first.exam_settings(suite).items():
            if settings[key] != value:
                raise UserError(
                    f"exams: {first.name} and {trial.name} had other {key} in {suite}: {value!r:.80} and "
                    f"{settings[key]!r:.80}; run one of the exams again with --fresh."
                )


def exam_lines(comparison: Comparison) -> list[str]:
    """The section of the report; empty if no trial was examined."""
    measures = exam_measures(comparison)
    if not measures:
        return []
    rows = [[results[0].arm, *map(shown_with_difference, results)] for results in results_by_arm(comparison, *measures)]
    return section(
        "## Exams",
        markdown_table(["arm", *(f"{measure.name} %" for measure in measures)], rows),
        "Benchmarks that were not trained on, after the last round: means over the examined trials, and below them the "
        "paired difference to the baseline, over seeds and the groups of the exam's items.",
    )
