"""Measures: the numbers of each finished trial that a comparison compares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seal_ray.metrics import categories_of
from seal_ray.report.files import Row
from tuning.comparison.collect import EVALUATION, ArmTrial, Comparison
from tuning.record import State
from tuning.statistics import last_quarter_mean, normalised_area

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
