"""Measures: what a comparison asks of each trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seal_ray.metrics import categories_of
from seal_ray.report.files import Row
from tuning.comparison.collect import EVALUATION, ArmTrial, Comparison
from tuning.record import State
from tuning.statistics import last_quarter_mean, normalised_area

SHARE = "share"
"""The unit of measures between 0 and 1, which are shown in percent."""

_HINT_OFF = "solver/success_plain"
_TURNS = "evaluation/turns_done"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a finished trial, from its rows and its number of rounds; None where it was not measured.

    It counts `unit`s. `by_task` says that it is the mean of the same number of single tasks, `paired` that this number
    is itself a difference. Where it names an `exam` it is the share of that which is right, and its tasks are the
    groups of its items.
    """

    name: str
    meaning: str
    of: Callable[[Sequence[Row], int], float | None] = lambda _rows, _rounds: None
    unit: str = SHARE
    by_task: bool = False
    paired: bool = False
    exam: str | None = None


def _series(rows: Sequence[Row], metric: str) -> tuple[list[int], list[float]]:
    found = [(row["round"], row[metric]) for row in rows if row.get(metric) is not None]
    return [number for number, _ in found], [value for _, value in found]


def _final(metric: str) -> Callable[[Sequence[Row], int], float | None]:
    return lambda rows, rounds: next((row.get(metric) for row in rows if row["round"] == rounds), None)


def _gain(metric: str) -> Callable[[Sequence[Row], int], float | None]:
    def of(rows: Sequence[Row], rounds: int) -> float | None:
        before, after = (_final(metric)(rows, number) for number in (0, rounds))
        return None if before is None or after is None else after - before

    return of


def _area(metric: str) -> Callable[[Sequence[Row], int], float | None]:
    def of(rows: Sequence[Row], _: int) -> float | None:
        if any(row.get(metric, 0.0) is None for row in rows):  # a task's dialogue that was lost
            return None
        return normalised_area(*_series(rows, metric))

    return of


FINAL = Measure("final", "evaluation success after the last round", _final(EVALUATION), by_task=True)
AREA = Measure(
    "area", "mean evaluation success over the rounds (area under the curve)", _area(EVALUATION), by_task=True
)
GAIN = Measure(
    "gain",
    "evaluation success after the last round, less that of the model before training",
    _gain(EVALUATION),
    by_task=True,
    paired=True,
)
TURNS = Measure("turns_done", "turns of the evaluation that were done, after the last round", _final(_TURNS))
TURNS_GAIN = Measure(
    "turns_done_gain",
    "turns that were done after the last round, less those of the model before training",
    _gain(_TURNS),
    paired=True,
)
HINT_OFF = Measure(
    "hint_off",
    "success of training rollouts on the plain interface, last quarter of the rounds",
    lambda rows, rounds: last_quarter_mean(*_series(rows, _HINT_OFF), total=rounds),
)


def in_category(measure: Measure, category: str) -> Measure:
    """`FINAL` or `AREA` of one category."""
    of = _final if measure is FINAL else _area
    metric = f"{EVALUATION}/{category}"
    return Measure(f"{measure.name}/{category}", f"{measure.meaning}, {category}", of(metric), by_task=True)


def categories_in(comparison: Comparison) -> list[str]:
    """The categories that evaluations tell of, in the order of tables."""
    return categories_of(name for trial in comparison.trials for row in trial.rows for name in row)


def value_of(trial: ArmTrial, measure: Measure) -> float | None:
    """The measure of a trial; None unless it is finished."""
    if trial.state is not State.FINISHED:
        return None
    if measure.exam is None:
        return measure.of(trial.rows, trial.rounds)
    groups = trial.exams.get(measure.exam)
    return sum(right for right, _ in groups.values()) / sum(of for _, of in groups.values()) if groups else None


def by_task(trial: ArmTrial, measure: Measure) -> dict[str, float]:
    """Task → the measure of it alone, over the tasks that it is a mean of; empty where that was not written down.

    The groups of an exam count by their items, so that their mean is the share of all items.
    """
    if not measure.by_task or trial.state is not State.FINISHED:
        return {}
    if measure.exam is not None:
        groups = trial.exams.get(measure.exam, {})
        items = sum(of for _, of in groups.values())
        return {group: right * len(groups) / items for group, (right, _) in groups.items()}
    found = ((task, measure.of(rows, trial.rounds)) for task, rows in trial.rows_by_task.items())
    return {task: value for task, value in found if value is not None}
