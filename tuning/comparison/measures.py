"""Measures: the numbers of each finished trial, times to a threshold among them, and the results of arms in them."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seal_ray.metrics import categories_of
from seal_ray.report.files import Row
from seal_ray.statistics import (
    Estimate,
    crossed_estimate,
    holm,
    kaplan_meier_median,
    last_quarter_mean,
    mean_estimate,
    normalised_area,
)
from tuning.comparison.collect import EVALUATION, ArmTrial, Comparison
from tuning.record import State

SHARE = "share"
"""The unit of measures between 0 and 1, which reports show in percent."""

_HINT_OFF, _TURNS = "solver/success_plain", "evaluation/turns_done"

Compute = Callable[[Sequence[Row], int], float | None]
"""A trial's rows and its number of rounds → a number; None if it was not measured."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a finished trial.

    Attributes:
        unit: What it counts; `SHARE` for shares.
        by_task: Whether it is the mean of the same number of single tasks.
        paired: Whether it is itself a difference.
        exam: The suite of an exam whose share of right answers it is; its tasks are the groups of the suite's items.
    """

    name: str
    meaning: str
    compute: Compute = lambda _rows, _rounds: None
    unit: str = SHARE
    by_task: bool = False
    paired: bool = False
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


def in_category(measure: Measure, category: str) -> Measure:
    """`FINAL` or `AREA` of one category."""
    compute = (_final if measure is FINAL else _area)(f"{EVALUATION}/{category}")
    return Measure(f"{measure.name}/{category}", f"{measure.meaning}, {category}", compute, by_task=True)


def categories_in(comparison: Comparison) -> list[str]:
    """The categories of a comparison's evaluations, in the order of tables."""
    return categories_of(name for trial in comparison.trials for row in trial.rows for name in row)


def value_of(trial: ArmTrial, measure: Measure) -> float | None:
    """The measure of a trial; None unless it is finished."""
    if trial.state is not State.FINISHED:
        return None
    if measure.exam is None:
        return measure.compute(trial.rows, trial.rounds)
    groups = trial.exams.get(measure.exam)
    return sum(right for right, _ in groups.values()) / sum(count for _, count in groups.values()) if groups else None


def by_task(trial: ArmTrial, measure: Measure) -> dict[str, float]:
    """Task → the measure of it alone, over the tasks of which the measure is a mean; empty if they were not recorded.

    The groups of an exam are weighted by their items, so that their mean is the share of all items.
    """
    if not measure.by_task or trial.state is not State.FINISHED:
        return {}
    if measure.exam is not None:
        groups = trial.exams.get(measure.exam, {})
        items = sum(count for _, count in groups.values())
        return {group: right * len(groups) / items for group, (right, _) in groups.items()}
    values = ((task, measure.compute(rows, trial.rounds)) for task, rows in trial.rows_by_task.items())
    return {task: value for task, value in values if value is not None}


@dataclass(frozen=True, slots=True)
class ArmResult:
    """The finished trials of an arm in one measure.

    Attributes:
        estimate: Over the trials, and over tasks too if the measure is `paired`; None without finished trials.
        difference: To the baseline, over the seeds that both finished; None for the baseline or without such seeds.
        adjusted_p: The p-value of the difference after Holm's correction for all arms, in this measure.
    """

    arm: str
    measure: Measure
    estimate: Estimate | None
    difference: Estimate | None
    adjusted_p: float | None
    is_baseline: bool


def results_of(comparison: Comparison, measure: Measure) -> list[ArmResult]:
    """The result of every arm in a measure, in the order of the arms."""
    arms, baseline = list(comparison.manifest.arms), comparison.manifest.baseline
    differences = [None if arm == baseline else _difference(comparison, arm, measure) for arm in arms]
    adjusted = holm([None if difference is None else difference.p for difference in differences])
    return [
        ArmResult(arm, measure, _estimate(comparison, arm, measure), difference, p, is_baseline=arm == baseline)
        for arm, difference, p in zip(arms, differences, adjusted, strict=True)
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


def _estimate(comparison: Comparison, arm: str, measure: Measure) -> Estimate | None:
    trials = comparison.arm_trials(arm)
    measured = [(value, trial) for trial in trials if (value := value_of(trial, measure)) is not None]
    values = [value for value, _ in measured]
    if measure.paired:
        return _paired(values, [by_task(trial, measure) for _, trial in measured])
    return mean_estimate(values) if values else None


def _difference(comparison: Comparison, arm: str, measure: Measure) -> Estimate | None:
    baselines = {trial.seed: trial for trial in comparison.arm_trials(comparison.manifest.baseline)}
    differences, by_tasks = [], []
    for trial in comparison.arm_trials(arm):
        if (other := baselines.get(trial.seed)) is None:
            continue
        left, right = value_of(trial, measure), value_of(other, measure)
        if left is not None and right is not None:
            differences.append(left - right)
            ours, theirs = by_task(trial, measure), by_task(other, measure)
            by_tasks.append({task: ours[task] - theirs[task] for task in ours.keys() & theirs.keys()})
    return _paired(differences, by_tasks)


def _paired(differences: Sequence[float], by_tasks: Sequence[Mapping[str, float]]) -> Estimate | None:
    """The mean of differences by seed; its interval includes tasks if all seeds share two or more."""
    if not differences:
        return None
    shared = sorted(set.intersection(*map(set, by_tasks)))
    if len(shared) < 2:
        return mean_estimate(differences)
    return crossed_estimate(differences, np.array([[tasks[task] for task in shared] for tasks in by_tasks]))


_SLACK = 1e-9
"""Tolerance for shares that were computed in another order."""

Cost = Callable[[Sequence[Row], int], float | None]
"""A trial's rows and the number of a round → what the trial used up to that round; None if it was not counted."""


@dataclass(frozen=True, slots=True)
class TimesToThreshold:
    """The times of an arm's finished trials to a threshold.

    Attributes:
        trials: Their number.
        never: The names of trials that never reached it; they are censored at their last round.
        median_rounds: Kaplan and Meier's median, as the other two; None if less than half are estimated to reach it.
    """

    trials: int
    never: Sequence[str]
    median_rounds: float | None
    median_rollouts: float | None
    median_tasks: float | None


@dataclass(frozen=True, slots=True)
class Threshold:
    """A success, and the measures of the time to it.

    The measures are restricted times: until the first evaluation at or above the level, and at most the time that
    every finished trial has. Their mean needs no assumption on later rounds. `tasks` counts different tasks, at most
    `fewest_tasks`, the number of the finished trial with the fewest.

    Attributes:
        given: Whether a user gave the level; otherwise it is the baseline's mean final success.
    """

    level: float
    given: bool
    rounds: Measure
    rollouts: Measure
    tasks: Measure
    fewest_tasks: float

    def reached(self, comparison: Comparison, arm: str) -> TimesToThreshold:
        """The times of an arm."""
        trials = comparison.arm_trials(arm, State.FINISHED)
        firsts = [_first_round(trial.rows, self.level) for trial in trials]
        reached = [number is not None for number in firsts]

        def median(cost: Cost) -> float | None:
            ends = (trial.rounds if number is None else number for trial, number in zip(trials, firsts, strict=True))
            costs = [cost(trial.rows, end) for trial, end in zip(trials, ends, strict=True)]
            known = [value for value in costs if value is not None]
            return kaplan_meier_median(known, reached) if len(known) == len(costs) else None

        never = [trial.name for trial in trials if self.is_censored(trial)]
        return TimesToThreshold(len(trials), never, median(_rounds), median(rollouts_until), median(tasks_until))

    def is_censored(self, trial: ArmTrial) -> bool:
        """Whether a finished trial never reached it."""
        return trial.state is State.FINISHED and _first_round(trial.rows, self.level) is None


def threshold_of(comparison: Comparison) -> Threshold | None:
    """The given threshold, or the mean final success of the baseline; None if there is neither."""
    level = given = comparison.manifest.threshold
    if level is None:
        finals = [value_of(trial, FINAL) for trial in comparison.arm_trials(comparison.manifest.baseline)]
        known = [value for value in finals if value is not None]
        if not known:
            return None
        level = mean_estimate(known).mean
    finished = [trial for trial in comparison.trials if trial.state is State.FINISHED]

    def shortest(cost: Cost) -> float:
        costs = (cost(trial.rows, trial.rounds) for trial in finished)
        return min((value for value in costs if value is not None), default=math.inf)

    fewest_tasks = shortest(tasks_until)
    return Threshold(
        level,
        given is not None,
        _measure("rounds", level, _rounds, at_most=comparison.manifest.rounds),
        _measure("rollouts", level, rollouts_until, at_most=shortest(rollouts_until)),
        _measure("tasks", level, tasks_until, at_most=fewest_tasks),
        fewest_tasks,
    )


def _measure(unit: str, level: float, cost: Cost, *, at_most: float) -> Measure:
    def compute(rows: Sequence[Row], rounds: int) -> float | None:
        if all(row.get(EVALUATION) is None for row in rows):
            return None
        first = _first_round(rows, level)
        value = cost(rows, rounds if first is None else first)
        return None if value is None else min(value, at_most)

    meaning = f"{unit} to an evaluation success of {100 * level:.1f} %, or to the end if it was not reached"
    return Measure(f"{unit}_to_threshold", meaning, compute, unit)


def _first_round(rows: Sequence[Row], level: float) -> int | None:
    """The round of the first evaluation at or above the level."""
    evaluated = ((row["round"], row[EVALUATION]) for row in rows if row.get(EVALUATION) is not None)
    return next((number for number, success in evaluated if success >= level - _SLACK), None)


def _rounds(_: Sequence[Row], number: int) -> float:
    return float(number)


def rollouts_until(rows: Sequence[Row], number: int) -> float | None:
    """The training rollouts of the rounds up to this one; None if they were not counted."""
    counts = [row.get("solver/rollouts") for row in rows if 0 < row["round"] <= number]
    known = [count for count in counts if count is not None]
    return float(sum(known)) if len(known) == len(counts) else None


def tasks_until(rows: Sequence[Row], number: int) -> float | None:
    """The different tasks of training up to this round; None if they were not counted."""
    if number == 0:
        return 0.0
    return next((row.get("solver/tasks_seen") for row in rows if row["round"] == number), None)


def counts_tasks(comparison: Comparison) -> bool:
    """Whether any trial has counted its training tasks; trials of earlier versions have not."""
    return any(row.get("solver/tasks_seen") is not None for trial in comparison.trials for row in trial.rows)
