"""The evaluation before training: trials that begin with one model need it once. No Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seal_ray.report.files import Row, as_json
from tuning.recipe import Sections, differences
from tuning.record import TrialRecord

_DECIDES = ("environment", "engine", "solver", "evaluation")
"""Sections that decide what comes of an evaluation before training, where it is greedy."""


def is_greedy(settings: Sections) -> bool:
    """Whether evaluations are the same for all seeds, so that trials can share one."""
    return not settings["evaluation"]["temperature"]


def other_evaluation(trial: TrialRecord, settings: Sections) -> list[tuple[str, tuple[Any, Any]]]:
    """What makes a trial's evaluation before training another one than these settings do: as `differences`."""
    own = {section: as_json(settings[section]) for section in _DECIDES}
    return list(differences({section: trial.config.get(section) for section in _DECIDES}, own))


def beginning_of(trial: TrialRecord) -> Row | None:
    """What came of a trial's model before training, its `metrics` and `suites`; None where it was not evaluated."""
    # A trial that was killed in between has the one without the other.
    if not all(rows and rows[0]["round"] == 0 for rows in (trial.evaluations, trial.rows)):
        return None
    # A value that is no number stands there as null.
    found = trial.rows[0].items()
    metrics = {name: value for name, value in found if name.startswith("evaluation/") and value is not None}
    return {"metrics": metrics, "suites": trial.evaluations[0]["suites"]}


def beginning_beside(folder: Path, settings: Sections) -> Row | None:
    """What a trial whose run folder lies beside this one has of the model before training, evaluated in the same way.

    None where there is none, or evaluations are not greedy.
    """
    if not is_greedy(settings):
        return None
    for other in sorted(folder.parent.iterdir()):
        if other.is_dir() and other != folder:
            trial = TrialRecord.read(other, of_rounds=1)
            found = beginning_of(trial)
            if found is not None and not other_evaluation(trial, settings):
                return found
    return None
