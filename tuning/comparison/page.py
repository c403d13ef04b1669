"""The page of a comparison, `report.html`: one file without scripts, which links to the pages of its runs."""

from collections.abc import Mapping, Sequence

from seal_ray.report.page import drawn_picture, write_html
from tuning.comparison.collect import Comparison
from tuning.comparison.measures import AREA, FINAL, HINT_OFF, by_task, results_of
from tuning.comparison.pictures import CURVES, draw_arm_labels, draw_curve, draw_differences, rounds_of

PAGE = "report.html"
_SHOWN_TASKS = 50
"""Largest number of tasks of an arm in the list."""


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
        flips={arm: _shown(differing_tasks(comparison, arm)) for arm in arms if arm != comparison.manifest.baseline},
        pages={trial.name for trial in comparison.trials if (trial.folder / PAGE).is_file()},
        most=_SHOWN_TASKS,
    )


def differing_tasks(comparison: Comparison, arm: str) -> list[tuple[str, float, float]]:
    """(task, success of the arm, success of the baseline) after the last round, the largest differences first."""
    ours, theirs = (_success(comparison, name) for name in (arm, comparison.manifest.baseline))
    shared = [(task, ours[task], theirs[task]) for task in ours if task in theirs and ours[task] != theirs[task]]
    return sorted(shared, key=lambda row: (-abs(row[1] - row[2]), row[0]))


def _shown(tasks: Sequence[tuple[str, float, float]]) -> list[tuple[str, str, str]]:
    return [(task, f"{100 * ours:.0f} %", f"{100 * theirs:.0f} %") for task, ours, theirs in tasks]


def _success(comparison: Comparison, arm: str) -> Mapping[str, float]:
    """Task → mean success over the seeds of an arm."""
    values: dict[str, list[float]] = {}
    for trial in comparison.arm_trials(arm):
        for task, value in by_task(trial, FINAL).items():
            values.setdefault(task, []).append(value)
    return {task: sum(each) / len(each) for task, each in values.items()}
