"""A success as threshold: the runs that end above it, and the rounds, rollouts, tokens and tasks until then."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from seal_ray.report.files import Row
from seal_ray.statistics import kaplan_meier_median, mean_estimate
from tuning.comparison.collect import EVALUATION, ArmTrial, Comparison
from tuning.comparison.measures import FINAL, Measure, tokens_until, value_of
from tuning.record import State

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
        medians: Unit → Kaplan and Meier's median; None if less than half are estimated to reach it.
    """

    trials: int
    never: Sequence[str]
    medians: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class Threshold:
    """A success, and the measures of the time to it, by the units of `COSTS`.

    `times` are restricted: until the first evaluation at or above the level, and at most the time in `most`, which
    every finished trial has. Their mean needs no assumption on later rounds.

    Attributes:
        given: Whether a user gave the level; otherwise it is the baseline's mean final success.
    """

    level: float
    given: bool
    learnt: Measure
    times: Mapping[str, Measure]
    most: Mapping[str, float]

    def counted_times(self, comparison: Comparison) -> list[Measure]:
        """The measures in rounds and rollouts, and in tokens if a finished trial counted them."""
        rounds, rollouts, tokens, _ = self.times.values()
        counted = any(value_of(each, tokens) is not None for each in comparison.trials)
        return [rounds, rollouts, *([tokens] if counted else [])]

    def reached(self, comparison: Comparison, arm: str) -> TimesToThreshold:
        """The times of an arm."""
        trials = comparison.arm_trials(arm, State.FINISHED)
        firsts = [_first_round(trial.rows, self.level) for trial in trials]
        reached = [number is not None for number in firsts]
        ends = [trial.rounds if number is None else number for trial, number in zip(trials, firsts, strict=True)]

        def median(cost: Cost) -> float | None:
            costs = [cost(trial.rows, end) for trial, end in zip(trials, ends, strict=True)]
            known = [value for value in costs if value is not None]
            return kaplan_meier_median(known, reached) if len(known) == len(costs) else None

        never = [trial.name for trial in trials if self.is_censored(trial)]
        return TimesToThreshold(len(trials), never, {unit: median(cost) for unit, cost in COSTS.items()})

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

    most = {unit: shortest(cost) for unit, cost in COSTS.items()} | {"rounds": float(comparison.manifest.rounds)}
    times = {unit: _measure(unit, level, cost, at_most=most[unit]) for unit, cost in COSTS.items()}
    return Threshold(level, given is not None, _learnt(level), times, most)


def _learnt(level: float) -> Measure:
    def compute(rows: Sequence[Row], rounds: int) -> float | None:
        final = FINAL.compute(rows, rounds)
        return None if final is None else float(final >= level - _SLACK)

    meaning = f"whether evaluation success after the last round is at least {100 * level:.1f} %"
    return Measure("learnt", meaning, compute, binary=True)


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


COSTS: Mapping[str, Cost] = {
    "rounds": lambda _, number: float(number),
    "rollouts": rollouts_until,
    "tokens": tokens_until,
    "tasks": tasks_until,
}
"""Unit of the time to a threshold → its count; tasks are different ones."""


def counts_tasks(comparison: Comparison) -> bool:
    """Whether any trial has counted its training tasks; trials of earlier versions have not."""
    return any(row.get("solver/tasks_seen") is not None for trial in comparison.trials for row in trial.rows)
