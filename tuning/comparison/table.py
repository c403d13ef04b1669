"""The table of a comparison: every number, for programs to read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tuning.comparison.collect import ArmTrial, Comparison
from tuning.comparison.efficiency import counts_tasks
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
from tuning.comparison.results import results_of
from tuning.comparison.threshold import Threshold, threshold_of
from tuning.record import State
from tuning.statistics import Estimate

COLUMNS = (
    *("arm", "seed", "state", "rounds", "measure", "value", "low", "high", "given_seeds_low", "given_seeds_high"),
    *("seeds", "difference", "difference_low", "difference_high"),
    *("difference_given_seeds_low", "difference_given_seeds_high", "pairs", "tasks", "p", "p_holm", "censored"),
)
"""A trial's rows have its seed and value. An arm's have the seed "all", the mean over its finished trials as the value
with its interval, and the paired difference to the baseline with its own, which takes in the sampling of so many
`tasks` (0: it is over seeds alone), its p-value, and that after Holm's correction for the number of arms. Given the
seeds, an interval is over tasks alone. Times to a threshold tell how many trials are `censored`. What there is not is
empty."""


def measures_of(comparison: Comparison) -> list[Measure]:
    """Every measure, in the order of the table."""
    threshold, categories = threshold_of(comparison), categories_in(comparison)
    times = [] if threshold is None else [threshold.rounds, threshold.rollouts]
    if threshold is not None and counts_tasks(comparison):
        times.append(threshold.tasks)
    by_category = (in_category(whole, each) for whole in (FINAL, AREA) for each in categories)
    return [FINAL, AREA, HINT_OFF, GAIN, TURNS, TURNS_GAIN, *times, *exam_measures(comparison), *by_category]


def table_of(comparison: Comparison) -> Iterator[Sequence[object]]:
    """The columns, then a row for each trial and measure, and for each arm and measure."""
    yield COLUMNS
    measures, threshold = measures_of(comparison), threshold_of(comparison)
    for trial in comparison.trials:
        for measure in measures:
            value = value_of(trial, measure)
            found = (trial.arm, trial.seed, trial.state, trial.rounds, measure.name, _number(value))
            yield *found, *[""] * (len(COLUMNS) - len(found) - 1), _censored(threshold, measure, [trial])
    results = {(each.arm, measure.name): each for measure in measures for each in results_of(comparison, measure)}
    for arm in comparison.manifest.arms:
        finished = comparison.of(arm, State.FINISHED)
        state = f"{len(finished)} of {len(comparison.of(arm))} finished"
        for measure in measures:
            result = results[arm, measure.name]
            tests: Sequence[object] = ("", "", "")
            if (difference := result.difference) is not None:
                tests = (difference.tasks, _number(difference.p), _number(result.adjusted_p))
            cells = [*_cells(result.estimate), *_cells(difference), *tests, _censored(threshold, measure, finished)]
            yield arm, "all", state, comparison.manifest.rounds, measure.name, *cells


def _censored(threshold: Threshold | None, measure: Measure, trials: Sequence[ArmTrial]) -> object:
    """How many of the trials never came to the threshold, beside a time to it."""
    if threshold is None or measure.unit == SHARE or not any(each.state is State.FINISHED for each in trials):
        return ""
    return sum(map(threshold.is_censored, trials))


def _cells(estimate: Estimate | None) -> list[object]:
    if estimate is None:
        return ["", "", "", "", "", 0]
    bounds = (estimate.low, estimate.high, *(estimate.given_seeds or (None, None)))
    return [_number(estimate.mean), *map(_number, bounds), estimate.count]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6f}"
