"""Results: an arm's estimate in a measure, and its difference to the baseline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuning.comparison.collect import Comparison
from tuning.comparison.measures import AREA, FINAL, Measure, by_task, categories_in, in_category, value_of
from tuning.statistics import Estimate, crossed_estimate, holm, mean_estimate


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
