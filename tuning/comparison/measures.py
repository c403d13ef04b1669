"""Measures: what a comparison asks of each trial, and what they come to for an arm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from seal_ray.report.drawing import Row
from seal_ray.report.metrics import categories_of
from tuning.comparison.collect import ArmTrial, Comparison
from tuning.record import State
from tuning.statistics import Estimate, last_quarter_mean, mean_estimate, normalised_area, paired_estimate

_EVALUATION = "evaluation/success"
_HINT_OFF = "solver/success_plain"


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a finished trial, from its rows and its number of rounds; None where it was not measured."""

    name: str
    meaning: str
    of: Callable[[Sequence[Row], int], float | None]


@dataclass(frozen=True, slots=True)
class ArmResult:
    """What the finished trials of an arm come to in one measure.

    `estimate` is None without finished trials; `difference` is to the baseline, over the seeds that both finished, and
    None for the baseline itself or without such seeds.
    """

    arm: str
    measure: Measure
    estimate: Estimate | None
    difference: Estimate | None


def _series(rows: Sequence[Row], metric: str) -> tuple[list[int], list[float]]:
    found = [(row["round"], row[metric]) for row in rows if row.get(metric) is not None]
    return [number for number, _ in found], [value for _, value in found]


def _final(metric: str) -> Callable[[Sequence[Row], int], float | None]:
    def of(rows: Sequence[Row], rounds: int) -> float | None:
        return next((row.get(metric) for row in rows if row["round"] == rounds), None)

    return of


def _area(metric: str) -> Callable[[Sequence[Row], int], float | None]:
    return lambda rows, _: normalised_area(*_series(rows, metric))


FINAL = Measure("final", "evaluation success after the last round", _final(_EVALUATION))
AREA = Measure("area", "mean evaluation success over the rounds (area under the curve)", _area(_EVALUATION))
HINT_OFF = Measure(
    "hint_off",
    "success of training rollouts on the plain interface, last quarter of the rounds",
    lambda rows, rounds: last_quarter_mean(*_series(rows, _HINT_OFF), total=rounds),
)


def in_category(measure: Measure, category: str) -> Measure:
    """`FINAL` or `AREA` of one category."""
    of = _final if measure is FINAL else _area
    return Measure(f"{measure.name}/{category}", f"{measure.meaning}, {category}", of(f"{_EVALUATION}/{category}"))


def categories_in(comparison: Comparison) -> list[str]:
    """The categories that evaluations tell of, in the order of tables."""
    return categories_of(name for trial in comparison.trials for row in trial.rows for name in row)


def measures_of(comparison: Comparison) -> list[Measure]:
    """Every measure, in the order of the table."""
    categories = categories_in(comparison)
    return [FINAL, AREA, HINT_OFF, *(in_category(whole, each) for whole in (FINAL, AREA) for each in categories)]


def value_of(trial: ArmTrial, measure: Measure) -> float | None:
    """The measure of a trial; None unless it is finished."""
    return measure.of(trial.rows, trial.rounds) if trial.state is State.FINISHED else None


def arm_result(comparison: Comparison, arm: str, measure: Measure) -> ArmResult:
    """What an arm comes to in a measure, over its finished trials."""
    values = _by_seed(comparison, arm, measure)
    baseline = comparison.manifest.baseline
    of_baseline = {} if arm == baseline else _by_seed(comparison, baseline, measure)
    differences = [values[seed] - of_baseline[seed] for seed in values if seed in of_baseline]
    return ArmResult(
        arm,
        measure,
        mean_estimate(list(values.values())) if values else None,
        paired_estimate(differences) if differences else None,
    )


def _by_seed(comparison: Comparison, arm: str, measure: Measure) -> dict[int, float]:
    found = {trial.seed: value_of(trial, measure) for trial in comparison.of(arm)}
    return {seed: value for seed, value in found.items() if value is not None}


COLUMNS = (
    *("arm", "seed", "state", "rounds", "measure", "value", "low", "high", "seeds"),
    *("difference", "difference_low", "difference_high", "pairs"),
)
"""A trial's rows have its seed and value. An arm's have the seed "all", the mean over its finished trials as the value
with its interval, and the paired difference to the baseline with its own. What there is not is empty."""


def table_of(comparison: Comparison) -> Iterator[Sequence[object]]:
    """The columns, then a row for each trial and measure, and for each arm and measure."""
    yield COLUMNS
    measures = measures_of(comparison)
    for trial in comparison.trials:
        for measure in measures:
            found = (trial.arm, trial.seed, trial.state, trial.rounds, measure.name, _number(value_of(trial, measure)))
            yield *found, *[""] * (len(COLUMNS) - len(found))
    for arm in comparison.manifest.arms:
        for measure in measures:
            result = arm_result(comparison, arm, measure)
            state = f"{len(comparison.of(arm, State.FINISHED))} of {len(comparison.of(arm))} finished"
            cells = [*_cells(result.estimate), *_cells(result.difference)]
            yield arm, "all", state, comparison.manifest.rounds, measure.name, *cells


def _cells(estimate: Estimate | None) -> list[object]:
    if estimate is None:
        return ["", "", "", 0]
    return [_number(estimate.mean), _number(estimate.low), _number(estimate.high), estimate.count]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
