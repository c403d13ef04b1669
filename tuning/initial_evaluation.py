"""The evaluation before training, which trials that begin with the same model can share. No Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seal_ray.report.files import Row, as_json
from tuning.recipe import Sections, differences
from tuning.record import TrialRecord

_DECISIVE = ("environment", "engine", "solver", "evaluation")
"""Sections on which an evaluation before training depends; it is greedy, and does not depend on the seed."""


def evaluation_differences(config: Sections, settings: Sections) -> list[tuple[str, tuple[Any, Any]]]:
    """The settings by which evaluations before training differ, of a stored config and of `settings`."""
    ours = {section: as_json(settings[section]) for section in _DECISIVE}
    return list(differences({section: config.get(section) for section in _DECISIVE}, ours))


def initial_evaluation(trial: TrialRecord) -> Row | None:
    """The `metrics` and `suites` of a trial's evaluation before training; None if it has none."""
    # A trial that was killed in between has the one file without the other.
    if not all(rows and rows[0]["round"] == 0 for rows in (trial.evaluations, trial.rows)):
        return None
    row = trial.rows[0].items()  # a metric that is not a finite number is null
    metrics = {name: value for name, value in row if name.startswith("evaluation/") and value is not None}
    return {"metrics": metrics, "suites": trial.evaluations[0]["suites"]}


def neighbour_evaluation(folder: Path, settings: Sections) -> Row | None:
    """The evaluation before training of another trial in the same parent folder, if it was made with equal settings."""
    for other in sorted(folder.parent.iterdir()):
        if other.is_dir() and other != folder:
            trial = TrialRecord.read(other, planned_rounds=1)
            evaluation = initial_evaluation(trial)
            if evaluation is not None and not evaluation_differences(trial.config, settings):
                return evaluation
    return None
