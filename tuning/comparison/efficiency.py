"""Data efficiency: what success took in different tasks and in rollouts, as GenEnv compares it (arXiv 2512.19682)."""

from __future__ import annotations

from collections.abc import Iterator

from tuning.comparison.collect import Comparison
from tuning.comparison.measures import FINAL, value_of
from tuning.comparison.results import results_of
from tuning.comparison.texts import markdown_table, shown, shown_difference
from tuning.comparison.threshold import Spent, Threshold, rollouts_until, tasks_until, threshold_of
from tuning.record import State
from tuning.statistics import mean_estimate

EFFICIENCY = "efficiency.png"
"""Name of the picture beside the report."""


def counts_tasks(comparison: Comparison) -> bool:
    """Whether any trial has counted the tasks that it was trained on; those of earlier versions have not."""
    return any(row.get("solver/tasks_seen") is not None for trial in comparison.trials for row in trial.rows)


def efficiency_lines(comparison: Comparison) -> list[str]:
    """The section on data efficiency; empty where tasks were not counted, or nothing is finished."""
    threshold = threshold_of(comparison)
    if threshold is None or not counts_tasks(comparison):
        return []
    head = ["arm", "tasks", "rollouts", "final %", "tasks to the threshold, median", "restricted mean", "− baseline"]
    return [
        "## Data efficiency",
        "",
        f"![evaluation success over different tasks and over rollouts]({EFFICIENCY})",
        "",
        *markdown_table(head, list(_rows(comparison, threshold))),
        "",
        "**Tasks** are the different ones that training rollouts were played on, **rollouts** all of these, both to "
        f"the end of a run, mean over seeds. The threshold is {100 * threshold.level:.1f} % here too.",
        "",
        *_nothing_to_see(comparison, threshold),
    ]


def _nothing_to_see(comparison: Comparison, threshold: Threshold) -> Iterator[str]:
    """A warning where no run has reached the threshold within the tasks that all have seen."""
    until = [count for trial in comparison.trials if (count := value_of(trial, threshold.tasks)) is not None]
    if until and min(until) >= threshold.fewest_tasks:
        yield (
            f"**No run came to it within fewer than {threshold.fewest_tasks:.0f} tasks**, as many as the run with the "
            "fewest was trained on: restricted means and their differences say nothing here."
        )
        yield ""


def _rows(comparison: Comparison, threshold: Threshold) -> Iterator[list[str]]:
    for final, until in zip(results_of(comparison, FINAL), results_of(comparison, threshold.tasks), strict=True):
        median = threshold.reached(comparison, final.arm).median_tasks
        difference = "baseline" if final.arm == comparison.manifest.baseline else shown_difference(until)
        yield [
            final.arm,
            _spent(comparison, final.arm, tasks_until),
            _spent(comparison, final.arm, rollouts_until),
            shown(final.estimate),
            "–" if median is None else f"{median:.0f}",
            shown(until.estimate, unit=threshold.tasks.unit),
            difference,
        ]


def _spent(comparison: Comparison, arm: str, spent: Spent) -> str:
    trials = comparison.of(arm, State.FINISHED)
    found = [count for trial in trials if (count := spent(trial.rows, trial.rounds)) is not None]
    return f"{mean_estimate(found).mean:.0f}" if found else "n/a"
