"""The page of a comparison, `report.html`: one file without scripts, which links to the pages of its runs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seal_ray.report.chats import Chat, ChatPair, chats_with_outcomes, pairs_of
from seal_ray.report.files import TRIALS, log_path
from seal_ray.report.page import drawn_picture, write_html
from tuning.comparison.collect import ArmTrial, Comparison
from tuning.comparison.measures import AREA, FINAL, HINT_OFF, by_task, results_of
from tuning.comparison.pictures import CURVES, draw_arm_labels, draw_curve, draw_differences, rounds_of
from tuning.comparison.preregistration import preregistration_of

PAGE = "report.html"
_SHOWN_CHATS = 50
"""Pairs of dialogues on a page, of all arms together."""


@dataclass(frozen=True, slots=True)
class Flips:
    """Tasks in which an arm ends otherwise than the baseline, as (task, its success, the baseline's), and dialogues."""

    arm: str
    tasks: Sequence[tuple[str, float, float]]
    pairs: Sequence[ChatPair]

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """The tasks for a table, each with the command that shows its dialogues."""
        return [
            (task, f"{100 * ours:.0f} %", f"{100 * theirs:.0f} %", f"seal-ray show . --task {shlex.quote(task)}")
            for task, ours, theirs in self.tasks
        ]


def write_page(
    comparison: Comparison, *, table: Sequence[Sequence[str]], settings: Sequence[Sequence[str]], legend: str
) -> None:
    """Writes the page, with the main table and the settings that differ, head first, and the table's legend."""
    arms, rounds = comparison.manifest.arms, rounds_of(comparison)
    measured = {"Final success": FINAL, "Area under the curve": AREA, "Training without hints": HINT_OFF}
    write_html(
        comparison.folder / PAGE,
        __package__,
        name=comparison.folder.resolve().name,
        comparison=comparison,
        frozen=preregistration_of(comparison.folder),
        results=table,
        settings=settings,
        legend=legend.replace("**", ""),
        curves=[drawn_picture(title, draw_curve, comparison, *shown, rows=rounds) for title, shown in CURVES.items()],
        differences=[
            drawn_picture(title, draw_differences, results_of(comparison, measure), rows=())
            for title, measure in measured.items()
        ],
        labels=[
            drawn_picture(arm, draw_arm_labels, comparison, arm, rows=[row for row in rounds if row["round"]])
            for arm in arms
        ],
        flips=[flips_of(comparison, arm) for arm in arms if arm != comparison.manifest.baseline],
        pages={trial.name for trial in comparison.trials if (trial.folder / PAGE).is_file()},
    )


def flips_of(comparison: Comparison, arm: str) -> Flips:
    """The tasks that differ, with dialogues of the first of them, from a seed in which they differ the same way."""
    manifest, tasks = comparison.manifest, differing_tasks(comparison, arm)
    most = _SHOWN_CHATS // (len(manifest.arms) - 1)
    baseline = {trial.seed: trial for trial in comparison.arm_trials(manifest.baseline)}
    pairs: dict[str, ChatPair] = {}
    for trial in comparison.arm_trials(arm):
        ours, theirs = by_task(trial, FINAL), by_task(baseline[trial.seed], FINAL) if trial.seed in baseline else {}
        better = {task: all_ours > all_theirs for task, all_ours, all_theirs in tasks if task not in pairs}
        same = [task for task in better if task in theirs and ours.get(task) == better[task] != theirs[task]]
        wanted = {task: better[task] for task in same[: most - len(pairs)]}
        if wanted:
            left = _last_chats(baseline[trial.seed], {task: not kind for task, kind in wanted.items()})
            pairs |= {pair.task: pair for pair in pairs_of(left, _last_chats(trial, wanted), wanted)}
    return Flips(arm, tasks, [pairs[task] for task, *_ in tasks if task in pairs])


def _last_chats(trial: ArmTrial, wanted: Mapping[str, bool]) -> dict[str, Chat]:
    log = log_path(trial.folder, "evaluation", trial.rounds)
    return chats_with_outcomes(log, wanted, trial.name, f"{TRIALS}/{trial.name}", trial.rounds)


def differing_tasks(comparison: Comparison, arm: str) -> list[tuple[str, float, float]]:
    """(task, success of the arm, success of the baseline) after the last round, the largest differences first."""
    ours, theirs = (_success(comparison, name) for name in (arm, comparison.manifest.baseline))
    shared = [(task, ours[task], theirs[task]) for task in ours if task in theirs and ours[task] != theirs[task]]
    return sorted(shared, key=lambda row: (-abs(row[1] - row[2]), row[0]))


def _success(comparison: Comparison, arm: str) -> Mapping[str, float]:
    """Task → mean success over the seeds of an arm."""
    values: dict[str, list[float]] = {}
    for trial in comparison.arm_trials(arm):
        for task, value in by_task(trial, FINAL).items():
            values.setdefault(task, []).append(value)
    return {task: sum(each) / len(each) for task, each in values.items()}
