"""Measures: the numbers of each finished trial, and the results of arms in them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import numpy as np

from envs.errors import UserError
from seal_ray.metrics import categories_of
from seal_ray.report.files import Row
from seal_ray.statistics import (
    Estimate,
    crossed_estimate,
    fisher_p,
    holm,
    last_quarter_mean,
    mean_estimate,
    normalised_area,
    share_estimate,
    sign_flip_p,
)
from tuning.comparison.collect import EVALUATION, ArmTrial, Comparison
from tuning.record import State

SHARE = "share"
"""The unit of measures between 0 and 1, which reports show in percent."""

_HINT_OFF, _TURNS = "solver/success_plain", "evaluation/turns_done"
_SOLVER = "solver/tokens_sampled"
_SAMPLED = ("/tokens_sampled", "/probe_tokens")
"""Ends of the names of metrics that count a round's sampled tokens: of all agents, and of turn probes."""

Compute = Callable[[Sequence[Row], int], float | None]
"""A trial's rows and its number of rounds → a number; None if it was not measured."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a finished trial.

    Attributes:
        unit: What it counts; `SHARE` for shares.
        by_task: Whether it is the mean of the same number of single tasks.
        paired: Whether it is itself a difference.
        binary: Whether it is 1 or 0 in each trial.
        exam: The suite of an exam whose share of right answers it is; its tasks are the groups of the suite's items.
    """

    name: str
    meaning: str
    compute: Compute = lambda _rows, _rounds: None
    unit: str = SHARE
    by_task: bool = False
    paired: bool = False
    binary: bool = False
    exam: str | None = None


def _series(rows: Sequence[Row], metric: str) -> tuple[list[int], list[float]]:
    known = [(row["round"], row[metric]) for row in rows if row.get(metric) is not None]
    return [number for number, _ in known], [value for _, value in known]


def _final(metric: str) -> Compute:
    return lambda rows, rounds: next((row.get(metric) for row in rows if row["round"] == rounds), None)


def _gain(metric: str) -> Compute:
    def compute(rows: Sequence[Row], rounds: int) -> float | None:
        before, after = (_final(metric)(rows, number) for number in (0, rounds))
        return None if before is None or after is None else after - before

    return compute


def _area(metric: str) -> Compute:
    def compute(rows: Sequence[Row], _: int) -> float | None:
        if any(row.get(metric, 0.0) is None for row in rows):  # a task's dialogue that was lost
            return None
        return normalised_area(*_series(rows, metric))

    return compute


FINAL = Measure("final", "evaluation success after the last round", _final(EVALUATION), by_task=True)
AREA = Measure(
    "area", "mean evaluation success over the rounds (area under the curve)", _area(EVALUATION), by_task=True
)
GAIN = Measure(
    "gain",
    "evaluation success after the last round minus before training",
    _gain(EVALUATION),
    by_task=True,
    paired=True,
)
TURNS = Measure("turns_done", "turns done of the evaluation after the last round", _final(_TURNS))
TURNS_GAIN = Measure(
    "turns_done_gain", "turns done after the last round minus before training", _gain(_TURNS), paired=True
)
HINT_OFF = Measure(
    "hint_off",
    "success of training rollouts on the plain interface, last quarter of the rounds",
    lambda rows, rounds: last_quarter_mean(*_series(rows, _HINT_OFF), total=rounds),
)


def _guided_minus_plain(rows: Sequence[Row], _: int) -> float | None:
    pairs = [(row.get("solver/success_shown"), row.get(_HINT_OFF)) for row in rows]
    known = [guided - plain for guided, plain in pairs if guided is not None and plain is not None]
    return fmean(known) if known else None


GUIDED = Measure(
    "guided", "success with minus without hints in training, mean of rounds", _guided_minus_plain, paired=True
)


def in_category(measure: Measure, category: str) -> Measure:
    """`FINAL` or `AREA` of one category."""
    compute = (_final if measure is FINAL else _area)(f"{EVALUATION}/{category}")
    return Measure(f"{measure.name}/{category}", f"{measure.meaning}, {category}", compute, by_task=True)


def categories_in(comparison: Comparison) -> list[str]:
    """The categories of a comparison's evaluations, in the order of tables."""
    return categories_of(name for trial in comparison.trials for row in trial.rows for name in row)


def value_of(trial: ArmTrial, measure: Measure, budget: float | None = None) -> float | None:
    """The measure of a trial, if given after so many sampled tokens; None unless it is finished."""
    if trial.state is not State.FINISHED:
        return None
    if measure.exam is None:
        return measure.compute(_read(trial, trial.rows, budget), trial.rounds)
    groups = trial.exams.get(measure.exam)
    return sum(right for right, _ in groups.values()) / sum(count for _, count in groups.values()) if groups else None


def by_task(trial: ArmTrial, measure: Measure, budget: float | None = None) -> dict[str, float]:
    """Task → the measure of it alone, over the tasks of which the measure is a mean; empty if they were not recorded.

    The groups of an exam are weighted by their items, so that their mean is the share of all items.
    """
    if not measure.by_task or trial.state is not State.FINISHED:
        return {}
    if measure.exam is not None:
        groups = trial.exams.get(measure.exam, {})
        items = sum(count for _, count in groups.values())
        return {group: right * len(groups) / items for group, (right, _) in groups.items()}
    values = (
        (task, measure.compute(_read(trial, rows, budget), trial.rounds)) for task, rows in trial.rows_by_task.items()
    )
    return {task: value for task, value in values if value is not None}


def _read(trial: ArmTrial, rows: Sequence[Row], budget: float | None) -> Sequence[Row]:
    return rows if budget is None else rows_over_tokens(rows, spent_tokens(trial.rows), budget, trial.rounds)


def spent_tokens(rows: Sequence[Row]) -> dict[int, float]:
    """Round → the tokens that were sampled in training up to its end; empty if the solver's were not counted."""
    spent, total = dict[int, float](), 0.0
    for row in rows:
        if row["round"] and row.get(_SOLVER) is None:
            return {}
        total += sum(value or 0.0 for name, value in row.items() if name.endswith(_SAMPLED))
        spent[row["round"]] = total
    return spent


def tokens_until(rows: Sequence[Row], number: int) -> float | None:
    """The tokens that were sampled in training up to this round; None if they were not counted."""
    return spent_tokens(rows).get(number)


def rows_over_tokens(rows: Sequence[Row], spent: Mapping[int, float], budget: float, rounds: int) -> list[Row]:
    """The rows up to a budget of tokens, with `round` in proportion to tokens, so that the budget is at `rounds`.

    Evaluation metrics at the budget are interpolated between the evaluations before and after it.

    Args:
        spent: `spent_tokens` of the run.
    """
    times = [(rounds * (spent[row["round"]] / budget), row) for row in rows if row["round"] in spent]
    read: list[Row] = [{**row, "round": time} for time, row in times if time <= rounds]
    evaluated = [(time, row) for time, row in times if any(name.startswith("evaluation/") for name in row)]
    before = [pair for pair in evaluated if pair[0] <= rounds]
    after = [pair for pair in evaluated if pair[0] > rounds]
    if before and after and before[-1][0] < rounds:
        (start, left), (end, right) = before[-1], after[0]
        share = (rounds - start) / (end - start)
        names = [name for name in left.keys() & right.keys() if name.startswith("evaluation/")]
        values = {name: (left[name], right[name]) for name in names}
        read.append(
            {"round": rounds}
            | {name: None if None in pair else pair[0] + share * (pair[1] - pair[0]) for name, pair in values.items()}
        )
    return read


def token_budget(comparison: Comparison, arm: str) -> float | None:
    """The tokens that all finished trials of an arm and of the baseline sampled; None if rollouts are equal instead.

    Raises `UserError` if a trial did not count its tokens.
    """
    if comparison.manifest.match != "tokens":
        return None
    budget = None
    for trial in comparison.trials:
        if trial.state is State.FINISHED and trial.arm in (arm, comparison.manifest.baseline):
            if not (tokens := tokens_until(trial.rows, trial.rounds)):
                raise UserError(f"--match: {trial.name} has no count of its sampled tokens; use --match rollouts.")
            budget = tokens if budget is None else min(budget, tokens)
    return budget


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The finished trials of an arm in one measure.

    Attributes:
        estimate: Over the trials, and over tasks too if the measure is `paired`; None without finished trials.
        difference: To the baseline, over the seeds that both finished; None for the baseline or without such seeds.
        exact_p: Of the sign-flip test over seeds, or of Fisher's test if the measure is `binary`.
        adjusted_p: The p-value of the difference after Holm's correction for all arms, in this measure; so is
            `adjusted_exact_p`.
    """

    arm: str
    measure: Measure
    estimate: Estimate | None
    difference: Estimate | None
    is_baseline: bool
    exact_p: float | None = None
    adjusted_p: float | None = None
    adjusted_exact_p: float | None = None


def results_of(comparison: Comparison, measure: Measure) -> list[ArmResult]:
    """The result of every arm in a measure, in the order of the arms."""
    results = [_result(comparison, arm, measure) for arm in comparison.manifest.arms]
    adjusted = holm([None if each.difference is None else each.difference.p for each in results])
    exact = holm([each.exact_p for each in results])
    return [
        replace(each, adjusted_p=p, adjusted_exact_p=exact_p)
        for each, p, exact_p in zip(results, adjusted, exact, strict=True)
    ]


def results_by_arm(comparison: Comparison, *measures: Measure) -> Iterator[tuple[ArmResult, ...]]:
    """For every arm its results in these measures."""
    return zip(*(results_of(comparison, measure) for measure in measures), strict=True)


def regressions(comparison: Comparison) -> Iterator[tuple[str, ArmResult]]:
    """(category, result) for all categories in which an arm is below the baseline with its whole interval."""
    for whole in (FINAL, AREA):
        for category in categories_in(comparison):
            for result in results_of(comparison, in_category(whole, category)):
                difference = result.difference
                if difference is not None and difference.high is not None and difference.high < 0:
                    yield category, result


def _result(comparison: Comparison, arm: str, measure: Measure) -> ArmResult:
    baseline = comparison.manifest.baseline
    budget = token_budget(comparison, arm) if measure.unit == SHARE and measure.exam is None else None

    trials = {(trial.arm, trial.seed): trial for trial in comparison.trials if trial.arm in (arm, baseline)}
    values = {key: value_of(trial, measure, budget) for key, trial in trials.items()}
    tasks = {key: by_task(trial, measure, budget) for key, trial in trials.items()}
    strata = {task: name for trial in trials.values() if measure.by_task for task, name in trial.categories.items()}
    ours, theirs = (
        {seed: value for (name, seed), value in values.items() if name == one and value is not None}
        for one in (arm, baseline)
    )
    estimate: Estimate | None = None
    difference: Estimate | None = None
    exact_p: float | None = None
    if ours and measure.paired:
        estimate = _paired([*ours.values()], [tasks[arm, seed] for seed in ours], strata)
    elif ours:
        estimate = (share_estimate if measure.binary else mean_estimate)([*ours.values()])
    seeds = [seed for seed in ours if seed in theirs and arm != baseline]
    if seeds:
        differences = [ours[seed] - theirs[seed] for seed in seeds]
        pairs = [(tasks[arm, seed], tasks[baseline, seed]) for seed in seeds]
        by_tasks = [{task: left[task] - right[task] for task in left.keys() & right.keys()} for left, right in pairs]
        difference, exact_p = _paired(differences, by_tasks, strata), sign_flip_p(differences)
        if measure.binary:
            difference = Estimate(fmean(differences), None, None, len(differences))
            exact_p = fisher_p(round(sum(ours.values())), len(ours), round(sum(theirs.values())), len(theirs))
    return ArmResult(arm, measure, estimate, difference, arm == baseline, exact_p)


def _paired(
    differences: Sequence[float], by_tasks: Sequence[Mapping[str, float]], categories: Mapping[str, str]
) -> Estimate:
    """The mean of differences by seed; its interval includes tasks, by category, if all seeds share two or more."""
    shared = sorted(set.intersection(*map(set, by_tasks)))
    if len(shared) < 2:
        return mean_estimate(differences)
    table = np.array([[tasks[task] for task in shared] for tasks in by_tasks])
    return crossed_estimate(differences, table, [categories.get(task, "") for task in shared])
