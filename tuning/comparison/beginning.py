"""The evaluation before training: arms that begin with one model need it once, and an earlier comparison may have it.

No Ray.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from envs.errors import UserError
from seal_ray.report.files import Row, as_json
from tuning.comparison.collect import ArmTrial, collect
from tuning.comparison.merge import unpacked
from tuning.recipe import Sections, differences

_DECIDES = ("environment", "engine", "solver", "evaluation")
"""Sections that decide what comes of an evaluation before training, where it is greedy."""


def beginnings(piece: Path, arms: Mapping[str, Sections]) -> Mapping[str, Row]:
    """Arm → what a comparison, or a piece of one, has of its model before training: `metrics` and `suites`.

    Raises `UserError` for an arm whose start no trial there has evaluated with the same settings, or not greedily.
    """
    with TemporaryDirectory() as scratch:
        trials = [each for each in collect(unpacked(piece, Path(scratch))).trials if _has_start(each)]
        return {arm: _beginning(piece, trials, arm, settings) for arm, settings in arms.items()}


def _has_start(trial: ArmTrial) -> bool:
    # A trial that was killed in between has the one without the other.
    return all(rows and rows[0]["round"] == 0 for rows in (trial.evaluations, trial.rows))


def _beginning(piece: Path, trials: Sequence[ArmTrial], arm: str, settings: Sections) -> Row:
    if settings["evaluation"]["temperature"]:
        raise UserError("--start: evaluations at a temperature are other ones for other seeds; leave it out.")
    if not trials:
        raise UserError(f"--start: no trial of {piece} was evaluated before its training.")
    own = {section: as_json(settings[section]) for section in _DECIDES}
    others = []
    for trial in trials:
        others = list(differences({section: trial.config.get(section) for section in _DECIDES}, own))
        if not others:
            metrics = {name: value for name, value in trial.rows[0].items() if name.startswith("evaluation/")}
            return {"metrics": metrics, "suites": trial.evaluations[0]["suites"]}
    name, (left, right) = others[0]
    raise UserError(
        f"--start: {name} is {left!r:.80} in {piece} and {right!r:.80} in the arm {arm}; the model before training is "
        "taken from where it was evaluated in the same way."
    )
