"""Results: what the trials of an arm come to in a measure, and how it compares with the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tuning.comparison.collect import ArmTrial, Comparison
from tuning.comparison.measures import AREA, FINAL, Measure, by_task, categories_in, in_category, value_of
from tuning.statistics import Estimate, Floats, crossed_estimate, holm, mean_estimate

Pair = tuple[ArmTrial, ArmTrial]
"""The trials of an arm and of the baseline with one seed."""


@dataclass(frozen=True, slots=True)
class ArmResult:
    """What the finished trials of an arm come to in one measure.

    `estimate` is None without finished trials; `difference` is to the baseline, over the seeds that both finished, and
    None for the baseline itself or without such seeds. `adjusted_p` is its p-value after Holm's correction for all
    arms that are held against the baseline in this measure.
    """

    arm: str
    measure: Measure
    estimate: Estimate | None
    difference: Estimate | None
    adjusted_p: float | None


def results_of(comparison: Comparison, measure: Measure) -> list[ArmResult]:
    """The result of every arm in a measure, in the order of the arms."""
    arms = list(comparison.manifest.arms)
    differences = [_difference(comparison, arm, measure) for arm in arms]
    adjusted = holm([None if each is None else each.p for each in differences])
    found = []
    for arm, difference, adjusted_p in zip(arms, differences, adjusted, strict=True):
        values = [value for trial in comparison.of(arm) if (value := value_of(trial, measure)) is not None]
        found.append(ArmResult(arm, measure, mean_estimate(values) if values else None, difference, adjusted_p))
    return found


def regressions(comparison: Comparison) -> Iterator[tuple[str, ArmResult]]:
    """(category, result) for each category in which an arm is below the baseline, interval and all."""
    for whole in (FINAL, AREA):
        for category in categories_in(comparison):
            for result in results_of(comparison, in_category(whole, category)):
                found = result.difference
                if found is not None and found.high is not None and found.high < 0:
                    yield category, result


def _difference(comparison: Comparison, arm: str, measure: Measure) -> Estimate | None:
    baseline = comparison.manifest.baseline
    if arm == baseline:
        return None
    of_baseline = {trial.seed: trial for trial in comparison.of(baseline)}
    pairs, differences = [], []
    for trial in comparison.of(arm):
        other = of_baseline.get(trial.seed)
        if other is None:
            continue
        left, right = value_of(trial, measure), value_of(other, measure)
        if left is not None and right is not None:
            pairs.append((trial, other))
            differences.append(left - right)
    if not pairs:
        return None
    found = _by_task(pairs, measure)
    return mean_estimate(differences) if found is None else crossed_estimate(differences, found)


def _by_task(pairs: Sequence[Pair], measure: Measure) -> Floats | None:
    """The differences of the pairs by task, seeds × tasks, over the tasks that all have; None for fewer than two."""
    values = [(by_task(left, measure), by_task(right, measure)) for left, right in pairs]
    shared = sorted(set.intersection(*(set(each) for pair in values for each in pair)))
    if len(shared) < 2:
        return None
    return np.array([[left[task] - right[task] for task in shared] for left, right in values])
