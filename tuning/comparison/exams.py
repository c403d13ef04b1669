"""Results of `seal-ray exam` in the folders of a comparison's trials, as measures. No Ray."""

from __future__ import annotations

from collections.abc import Sequence

from envs.errors import UserError
from envs.task import sorted_categories
from tuning.comparison.collect import ArmTrial, Comparison
from tuning.comparison.measures import Measure
from tuning.comparison.results import results_by_arm
from tuning.comparison.texts import markdown_table, section, shown_with_difference
from tuning.record import State


def exam_measures(comparison: Comparison) -> list[Measure]:
    """The share of right answers in each suite that finished trials have. Raises `UserError` as `examined_suites`."""
    return [
        Measure(f"exam/{suite}", f"share of right answers in the exam {suite}", exam=suite, by_task=True)
        for suite in examined_suites(comparison.trials)
    ]


def examined_suites(trials: Sequence[ArmTrial]) -> list[str]:
    """The suites in which finished trials were examined.

    Raises:
        UserError: Trials had other items or settings than each other, or were examined before their last round.
    """
    finished = [trial for trial in trials if trial.state is State.FINISHED]
    suites = sorted_categories(suite for trial in finished for suite in trial.exams)
    for suite in suites:
        _check(suite, [trial for trial in finished if suite in trial.exams])
    return suites


def _check(suite: str, trials: Sequence[ArmTrial]) -> None:
    first, *others = trials
    for trial in trials:
        if trial.examined_round != trial.rounds:
            raise UserError(
                f"exams: {trial.name} was examined after round {trial.examined_round} and has {trial.rounds}; run its "
                "exam again with --fresh."
            )
    for trial in others:
        left, right = ({group: count for group, (_, count) in each.exams[suite].items()} for each in (first, trial))
        if left != right:
            raise UserError(
                f"exams: {first.name} and {trial.name} had other items of {suite}; give both the same --limit and "
                "--category."
            )
        settings = trial.exam_settings(suite)
        for key, value in first.exam_settings(suite).items():
            if settings[key] != value:
                raise UserError(
                    f"exams: {first.name} and {trial.name} had other {key} in {suite}: {value!r:.80} and "
                    f"{settings[key]!r:.80}; run one of the exams again with --fresh."
                )


def exam_lines(comparison: Comparison) -> list[str]:
    """The section of the report; empty if no trial was examined."""
    measures = exam_measures(comparison)
    if not measures:
        return []
    rows = [[results[0].arm, *map(shown_with_difference, results)] for results in results_by_arm(comparison, *measures)]
    return section(
        "## Exams",
        markdown_table(["arm", *(f"{measure.name} %" for measure in measures)], rows),
        "Benchmarks that were not trained on, after the last round: means over the examined trials, and below them the "
        "paired difference to the baseline, over seeds and the groups of the exam's items.",
    )
