"""Diagnoses made by hand, with the verdicts that go with their labels."""

from envs.diagnosis import Diagnosis, Label, TurnDiagnosis
from envs.verifier import Outcome, TurnVerdict

_OUTCOMES = {
    Label.PASS: Outcome.PASS,
    Label.CORRECT_ABSTENTION: Outcome.UNSCORED,
    Label.SPURIOUS_TOOL_CALL: Outcome.UNSCORED,
    Label.MISSING_TOOL_CALL: Outcome.EMPTY_TURN,
    Label.RESPONSE_MISMATCH: Outcome.RESPONSE_MISMATCH,
    Label.NOT_REACHED: Outcome.NOT_REACHED,
}
"""The outcome of a label; every other one is a state mismatch."""


def diagnosed(*turns: Label | tuple[Label, Outcome]) -> Diagnosis:
    """A dialogue of these turns."""
    made = []
    for number, turn in enumerate(turns):
        label, outcome = turn if isinstance(turn, tuple) else (turn, _OUTCOMES.get(turn, Outcome.STATE_MISMATCH))
        made.append(TurnDiagnosis(number, label, "", TurnVerdict(number, outcome)))
    success = all(turn.verdict.outcome in (Outcome.PASS, Outcome.UNSCORED) for turn in made)
    return Diagnosis("task", "multi_turn_base", tuple(made), success)
