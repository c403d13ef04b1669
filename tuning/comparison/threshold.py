"""Time to a threshold: rounds and rollouts until an evaluation reaches a success; some trials never do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seal_ray.report.files import Row
from tuning.comparison.collect import EVALUATION, ArmTrial, Comparison
from tuning.comparison.measures import FINAL, Measure, value_of
from tuning.record import State
from tuning.statistics import kaplan_meier_median, mean_estimate

_ROUNDS, _ROLLOUTS, _TASKS = "rounds", "rollouts", "tasks"
_SLACK = 1e-9
"""A share that was computed in another way is still the same share."""

Spent = Callable[[Sequence[Row], int], float | None]
"""A trial's rows and the number of a round → what was spent up to it; None where that was not counted."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How an arm came to a threshold.

    `never` are the names of its finished trials that did not; they are censored at their last round. The medians are
    Kaplan and Meier's, None where less than half are estimated to get there.
    """

    trials: int
    never: Sequence[str]
    median_rounds: float | None
    median_rollouts: float | None
    median_tasks: float | None


@dataclass(frozen=True, slots=True)
class Threshold:
    """A success that trials are held to. `given` says that it was asked for, and is not the baseline's.

    The measures are restricted times: those until the first evaluation at or above the level, and at most the time for
    which every finished trial was watched. Their mean needs no assumption on what comes later. `tasks` counts different
    tasks, at most `fewest_tasks`, those of the finished trial that was trained on the fewest.
    """

    level: float
    given: bool
    rounds: Measure
    rollouts: Measure
    tasks: Measure
    fewest_tasks: float

    def reached(self, comparison: Comparison, arm: str) -> Reached:
        """How the finished trials of an arm came to it."""
        trials = comparison.of(arm, State.FINISHED)
        at = [_reached_at(trial.rows, self.level) for trial in trials]
        there = [number is not None for number in at]
        ends = [trial.rounds if number is None else number for trial, number in zip(trials, at, strict=True)]

        def median(spent: Spent) -> float | None:
            until = [spent(trial.rows, number) for trial, number in zip(trials, ends, strict=True)]
            known = [each for each in until if each is not None]
            return kaplan_meier_median(known, there) if len(known) == len(until) else None

        return Reached(
            len(trials),
            [trial.name for trial, number in zip(trials, at, strict=True) if number is None],
            kaplan_meier_median(ends, there),
            median(rollouts_until),
            median(tasks_until),
        )

    def is_censored(self, trial: ArmTrial) -> bool:
        """Whether a finished trial never came to it."""
        return trial.state is State.FINISHED and _reached_at(trial.rows, self.level) is None


def threshold_of(comparison: Comparison) -> Threshold | None:
    """The threshold that was given, or the mean final success of the baseline; None where neither is there."""
    given = comparison.manifest.threshold
    finals = [value_of(each, FINAL) for each in comparison.of(comparison.manifest.baseline)]
    known = [each for each in finals if each is not None]
    if given is None and not known:
        return None
    level = mean_estimate(known).mean if given is None else given
    finished = [each for each in comparison.trials if each.state is State.FINISHED]

    def shortest(spent: Spent) -> float:
        found = (spent(each.rows, each.rounds) for each in finished)
        return min((each for each in found if each is not None), default=math.inf)

    fewest_tasks = shortest(tasks_until)
    return Threshold(
        level,
        given is not None,
        _measure(_ROUNDS, level, lambda _, number: float(number), at_most=comparison.manifest.rounds),
        _measure(_ROLLOUTS, level, rollouts_until, at_most=shortest(rollouts_until)),
        _measure(_TASKS, level, tasks_until, at_most=fewest_tasks),
        fewest_tasks,
    )


def _measure(unit: str, level: float, spent: Spent, *, at_most: float) -> Measure:
    def of(rows: Sequence[Row], rounds: int) -> float | None:
        if all(row.get(EVALUATION) is None for row in rows):
            return None
        reached = _reached_at(rows, level)
        found = spent(rows, rounds if reached is None else reached)
        return None if found is None else min(found, at_most)

    meaning = f"{unit} to an evaluation success of {100 * level:.1f} %, or to the end where it was not reached"
    return Measure(f"{unit}_to_threshold", meaning, of, unit)


def _reached_at(rows: Sequence[Row], level: float) -> int | None:
    """The round of the first evaluation at or above the level."""
    found = (row["round"] for row in rows if row.get(EVALUATION) is not None and row[EVALUATION] >= level - _SLACK)
    return next(found, None)


def rollouts_until(rows: Sequence[Row], number: int) -> float | None:
    """The training rollouts of the rounds up to this one; None where they were not counted."""
    counts = [row.get("solver/rollouts") for row in rows if 0 < row["round"] <= number]
    known = [each for each in counts if each is not None]
    return float(sum(known)) if len(known) == len(counts) else None


def tasks_until(rows: Sequence[Row], number: int) -> float | None:
    """The different tasks that were trained on up to this round; None where they were not counted."""
    if number == 0:
        return 0.0
    return next((row.get("solver/tasks_seen") for row in rows if row["round"] == number), None)
