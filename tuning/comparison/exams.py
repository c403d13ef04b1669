"""Exams of a comparison's trials as measures: what `seal-ray exam` has left in the folders of the trials. No Ray."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envs.errors import UserError
from envs.task import sorted_categories
from tuning.comparison.collect import ArmTrial, Comparison, Groups
from tuning.comparison.measures import Measure
from tuning.comparison.results import results_of
from tuning.comparison.texts import markdown_table, shown, shown_difference
from tuning.record import State


def exam_measures(comparison: Comparison) -> list[Measure]:
    """The share of each suite that finished trials were examined in.

    Raises `UserError` where trials were asked other items than each other or under other settings, or a trial was
    examined before its last round.
    """
    return [
        Measure(f"exam/{suite}", f"share of the exam {suite} that is right", exam=suite, by_task=True)
        for suite in examined_suites(comparison.trials)
    ]


def examined_suites(trials: Sequence[ArmTrial]) -> list[str]:
    """The suites that finished trials were examined in. Raises `UserError` as `exam_measures` does."""
    finished = [each for each in trials if each.state is State.FINISHED]
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
        if _items(trial.exams[suite]) != _items(first.exams[suite]):
            raise UserError(
                f"exams: {first.name} and {trial.name} were asked other items of {suite}; give both the same --limit "
                "and --category."
            )
        other = trial.exam_settings(suite)
        for key, value in first.exam_settings(suite).items():
            if other[key] != value:
                raise UserError(
                    f"exams: {first.name} and {trial.name} were asked {suite} with other {key}: {value!r:.80} and "
                    f"{other[key]!r:.80}; run one of the exams again with --fresh."
                )


def _items(groups: Groups) -> Mapping[str, int]:
    return {group: of for group, (_, of) in groups.items()}


def exam_lines(comparison: Comparison) -> Iterator[str]:
    """The section of the report; nothing where no trial was examined."""
    measures = exam_measures(comparison)
    if not measures:
        return
    head = ["arm", *(f"{measure.name} %" for measure in measures)]
    by_measure = [results_of(comparison, measure) for measure in measures]
    rows = [
        [
            results[0].arm,
            *(
                shown(each.estimate) + ("" if each.difference is None else f"<br>{shown_difference(each)}")
                for each in results
            ),
        ]
        for results in zip(*by_measure, strict=True)
    ]
    yield from (
        "## Exams",
        "",
        *markdown_table(head, rows),
        "",
        "What nobody trained for, asked after the last round: means over the trials that were examined, and below them "
        "the paired difference to the baseline, over seeds and the groups of the exam's items.",
        "",
    )
