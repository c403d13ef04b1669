"""The table of a comparison: every number, for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuning.comparison.collect import ArmTrial, Comparison
from tuning.comparison.exams import exam_measures
from tuning.comparison.measures import (
    AREA,
    FINAL,
    GAIN,
    HINT_OFF,
    SHARE,
    TURNS,
    TURNS_GAIN,
    Measure,
    categories_in,
    in_category,
    value_of,
)
from tuning.comparison.results import results_by_arm
from tuning.comparison.threshold import Threshold, counts_tasks, threshold_of
from tuning.record import State
from tuning.statistics import Estimate

COLUMNS = (
    *("arm", "seed", "state", "rounds", "measure", "value", "low", "high", "given_seeds_low", "given_seeds_high"),
    *("seeds", "difference", "difference_low", "difference_high"),
    *("difference_given_seeds_low", "difference_given_seeds_high", "pairs", "tasks", "p", "p_holm", "censored"),
)
"""A trial's rows have its seed and value. An arm's rows have the seed "all": the mean over its finished trials with its
interval, and the paired difference to the baseline with its interval, which includes the sampling of so many `tasks`
(0: over seeds alone), its p-value, and that after Holm's correction for the number of arms. `given_seeds` intervals are
over tasks alone. `censored` counts trials that never reached the threshold. Missing values are empty."""


def measures_of(comparison: Comparison) -> list[Measure]:
    """Every measure, in the order of the table."""
    threshold, categories = threshold_of(comparison), categories_in(comparison)
    times = [] if threshold is None else [threshold.rounds, threshold.rollouts]
    if threshold is not None and counts_tasks(comparison):
        times.append(threshold.tasks)
    by_category = (in_category(whole, category) for whole in (FINAL, AREA) for category in categories)
    return [FINAL, AREA, HINT_OFF, GAIN, TURNS, TURNS_GAIN, *times, *exam_measures(comparison), *by_category]


def table_of(comparison: Comparison) -> Iterator[Sequence[object]]:
    """The columns, then a row for every trial and measure, and for every arm and measure."""
    yield COLUMNS
    measures, threshold = measures_of(comparison), threshold_of(comparison)
    for trial in comparison.trials:
        for measure in measures:
            value = value_of(trial, measure)
            row = (trial.arm, trial.seed, trial.state, trial.rounds, measure.name, _number(value))
            yield *row, *[""] * (len(COLUMNS) - len(row) - 1), _censored(threshold, measure, [trial])
    for results in results_by_arm(comparison, *measures):
        arm = results[0].arm
        finished = comparison.arm_trials(arm, State.FINISHED)
        state = f"{len(finished)} of {len(comparison.arm_trials(arm))} finished"
        for result in results:
            tests: Sequence[object] = ("", "", "")
            if (difference := result.difference) is not None:
                tests = (difference.tasks, _number(difference.p), _number(result.adjusted_p))
            censored = _censored(threshold, result.measure, finished)
            cells = [*_cells(result.estimate), *_cells(difference), *tests, censored]
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
