"""The progress reward: an optional dense reward from a diagnosis. The paper's recipe does without it."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from envs.diagnosis import Diagnosis, TurnDiagnosis
from envs.errors import UserError
from envs.verifier import Outcome
from policies.trajectory import Trajectory


class TurnShareReward:
    """`progress_reward` of a dialogue's diagnosis."""

    class Settings(BaseModel):
        """The setting of the progress reward."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
        abstention_weight: Annotated[float, Field(ge=0.0, allow_inf_nan=False)] = 0.5
        """Weight of a turn without ground truth."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, trajectory: Trajectory) -> float:
        return progress_reward(trajectory.diagnosis, abstention_weight=self._settings.abstention_weight)


def progress_reward(diagnosis: Diagnosis, *, abstention_weight: float = 0.5) -> float:
    """The share of a dialogue's turns that passed, 0 to 1; 1 exactly where all did.

    A turn with ground truth weighs 1 and passes as the verifier says. A turn without any weighs `abstention_weight` and
    passes where nothing was called. At a weight of 1, never calling a tool is a local optimum of this reward; SEAL's
    authors saw training fall into it (arXiv 2605.24426 and its released code).

    A turn that was not reached weighs 1 and did not pass: left out, ending a dialogue early would pay.

    Raises `UserError` for a weight that is negative or not finite.
    """
    if not math.isfinite(abstention_weight) or abstention_weight < 0:
        raise UserError(
            f"abstention_weight: {abstention_weight!r} is not allowed; it is a finite number of at least 0."
        )
    total = passed = 0.0
    for turn in diagnosis.turns:
        weight = abstention_weight if turn.verdict.outcome is Outcome.UNSCORED else 1.0
        total += weight
        passed += weight * _passed(turn)
    return passed / total if total else float(diagnosis.success)


def _passed(turn: TurnDiagnosis) -> bool:
    if turn.verdict.outcome is Outcome.UNSCORED:
        # The paper's label goes by what was executed alone, so that finer labels never change a reward.
        return turn.paper_label != "spurious_tool_call"
    return turn.verdict.passed
