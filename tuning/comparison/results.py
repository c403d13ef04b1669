"""Results: what the trials of an arm come to in a measure, and how it compares with the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuning.comparison.collect import Comparison
from tuning.comparison.measures import AREA, FINAL, Measure, by_task, categories_in, in_category, value_of
from tuning.statistics import Estimate, crossed_estimate, holm, mean_estimate


@dataclass(frozen=True, slots=True)
class ArmResult:
    """What the finished trials of an arm come to in one measure.

    `estimate` is None without finished trials, and takes in tasks where the measure is `paired`; `difference` is to the
    baseline, over the seeds that both finished, and None for the baseline itself or without such seeds. `adjusted_p` is
    its p-value after Holm's correction for all arms that are held against the baseline in this measure.
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
        found.append(ArmResult(arm, measure, _estimate(comparison, arm, measure), difference, adjusted_p))
    return found


def regressions(comparison: Comparison) -> Iterator[tuple[str, ArmResult]]:
    """(category, result) for each category in which an arm is below the baseline, interval and all."""
    for whole in (FINAL, AREA):
        for category in categories_in(comparison):
            for result in results_of(comparison, in_category(whole, category)):
                found = result.difference
                if found is not None and found.high is not None and found.high < 0:
                    yield category, result


def _estimate(comparison: Comparison, arm: str, measure: Measure) -> Estimate | None:
    measured = [(value, trial) for trial in comparison.of(arm) if (value := value_of(trial, measure)) is not None]
    values = [value for value, _ in measured]
    if measure.paired:
        return _paired(values, [by_task(trial, measure) for _, trial in measured])
    return mean_estimate(values) if values else None


def _difference(comparison: Comparison, arm: str, measure: Measure) -> Estimate | None:
    baseline = comparison.manifest.baseline
    if arm == baseline:
        return None
    of_baseline = {trial.seed: trial for trial in comparison.of(baseline)}
    differences, by_tasks = [], []
    for trial in comparison.of(arm):
        other = of_baseline.get(trial.seed)
        if other is None:
            continue
        left, right = value_of(trial, measure), value_of(other, measure)
        if left is not None and right is not None:
            differences.append(left - right)
            ours, theirs = by_task(trial, measure), by_task(other, measure)
            by_tasks.append({task: ours[task] - theirs[task] for task in ours.keys() & theirs.keys()})
    return _paired(differences, by_tasks)


def _paired(differences: Sequence[float], by_tasks: Sequence[Mapping[str, float]]) -> Estimate | None:
    """The mean of differences by seed, with tasks in its interval where all have two or more in common."""
    if not differences:
        return None
    shared = sorted(set.intersection(*(set(each) for each in by_tasks)))
    if len(shared) < 2:
        return mean_estimate(differences)
    return crossed_estimate(differences, np.array([[each[task] for task in shared] for each in by_tasks]))
