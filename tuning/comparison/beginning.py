"""The model before training, as an earlier comparison has evaluated it (`--start`). No Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from envs.errors import UserError
from seal_ray.report.files import Row
from tuning.beginning import beginning_of, is_greedy, other_evaluation
from tuning.comparison.collect import ArmTrial, collect
from tuning.comparison.merge import unpacked
from tuning.recipe import Sections


def beginnings(piece: Path, arms: Mapping[str, Sections]) -> Mapping[str, Row]:
    """Arm → what a comparison, or a piece of one, has of its model before training: `metrics` and `suites`.

    Raises `UserError` for an arm whose start no trial there has evaluated with the same settings, or not greedily.
    """
    with TemporaryDirectory() as scratch:
        trials = collect(unpacked(piece, Path(scratch))).trials
        return {arm: _beginning(piece, trials, arm, settings) for arm, settings in arms.items()}


def _beginning(piece: Path, trials: Sequence[ArmTrial], arm: str, settings: Sections) -> Row:
    if not is_greedy(settings):
        raise UserError("--start: evaluations at a temperature are other ones for other seeds; leave it out.")
    known = [(found, other_evaluation(trial, settings)) for trial in trials if (found := beginning_of(trial))]
    if not known:
        raise UserError(f"--start: no trial of {piece} was evaluated before its training.")
    for found, others in known:
        if not others:
            return found
    _, [(name, (left, right)), *_] = known[-1]
    raise UserError(
        f"--start: {name} is {left!r:.80} in {piece} and {right!r:.80} in the arm {arm}; the model before training is "
        "taken from where it was evaluated in the same way."
    )
