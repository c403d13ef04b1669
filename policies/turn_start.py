"""`TurnStart`: the beginning of a turn of a played dialogue, from which the turn can be sampled again."""

from dataclasses import dataclass

from envs.diagnosis import Label
from policies.trajectory import Trajectory

Kind = tuple[str, str]
"""The category of a turn's task, and its label if it failed, else an empty text."""


@dataclass(frozen=True, slots=True)
class TurnStart:
    """The beginning of a turn: its task, its number from 0, and the token ids of all completions before it.

    `label` is the diagnosis of the recorded turn, `tokens` the number of its sampled tokens, and `names` are the tool
    and the argument that the diagnosis names.
    """

    task: str
    category: str
    turn: int
    label: Label
    tokens: int
    completions: tuple[tuple[int, ...], ...]
    names: tuple[str, ...] = ()

    @property
    def kind(self) -> Kind:
        """The stratum of turn probes that it belongs to."""
        return self.category, str(self.label) if self.label.is_failure else ""


def turn_start(trajectory: Trajectory, turn: int) -> TurnStart | None:
    """The beginning of a turn of a trajectory; None if its dialogue did not reach the end of the turn."""
    diagnosis = trajectory.diagnosis.turns[turn]
    label = diagnosis.label
    steps = [len(steps) for steps in trajectory.trace.turns]
    before, after = sum(steps[:turn]), sum(steps[: turn + 1])
    if label is Label.NOT_REACHED or before == after:
        return None
    spans = trajectory.sampled
    return TurnStart(
        trajectory.task,
        trajectory.category,
        turn,
        label,
        sum(span.end - span.begin for span in spans[before:after]),
        tuple(trajectory.token_ids_T[span.begin : span.end] for span in spans[:before]),
        tuple(name for name in (diagnosis.tool, diagnosis.argument) if name),
    )


def turn_to_probe(trajectory: Trajectory) -> int | None:
    """The first failed turn, or some turn of a successful dialogue, by its seed; None for a dialogue that was cut."""
    turns = trajectory.diagnosis.turns
    failed = next((turn.turn for turn in turns if turn.label.is_failure), None)
    if failed is None and all(turn.label.is_done for turn in turns):
        return trajectory.seed % len(turns)
    return failed
