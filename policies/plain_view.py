"""The plain view of a trajectory: the dialogue that its sampled tokens would have been on the plain interface.

An interface changes only what is shown, not the effect of a call. So a trajectory that was played under cues can be
replayed without them: a fresh plain dialogue of its task, with the very completions that were sampled. The world gives
the same results, and only the texts between the completions differ. A rollout with `CueDependence` has no plain view.
"""

from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest

from envs.errors import EnvironmentFault
from envs.interface import Interface
from envs.task import Task
from policies.cue_dependence import CueDependence, CueDependenceFinder
from policies.prompting import ChatFormat
from policies.solver import Budgets, TokenDialogue
from policies.trajectory import End, Sample, Sampled, Trajectory, interface_id


class NoView(StrEnum):
    """Why a trajectory has no plain view."""

    PROMPT = "prompt"
    """Its opening, as shown or plain, is longer than the prompt budget, or left no room to sample."""
    CONTEXT = "context"
    """With the plain texts its completions do not fit into the context."""
    REWARD = "reward"
    """The replay has another verdict."""
    LABELS = "labels"
    """The replay has another diagnosis, or ends elsewhere."""
    TRACE = "trace"
    """The replay has other calls, results or errors: for instance, feedback took the room of a result."""
    FAULT = "fault"
    """The task's world or user failed in the replay."""
    CRUTCH_QUOTE = str(CueDependence.QUOTE)
    """A completion quotes a cue: `CueDependence.QUOTE`."""
    CRUTCH_VALUE = str(CueDependence.VALUE)
    """A call uses a value from a cue alone: `CueDependence.VALUE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainView(Sample):
    """A trajectory's sampled tokens with the plain texts between them, T tokens in all.

    The n-th sampled token is the trajectory's n-th sampled token, `sampled[n]` the place of its n-th completion.
    `sampled_logprobs_T` (nats, under the interface that was shown) and `versions_T` are the trajectory's, as are its
    reward, diagnosis, trace and end.
    """

    sampled: tuple[Sampled, ...]


def plain_view(trajectory: Trajectory, task: Task, form: ChatFormat, budgets: Budgets) -> PlainView | NoView:
    """The plain view of a trajectory, or why there is none. A plain trajectory is its own view and is not replayed.

    It was played with this chat format and these budgets. Nothing in a trajectory makes this raise. A task's user must
    give the same answers again.
    """
    if trajectory.interface == interface_id(Interface.plain()):
        return trajectory.extended(PlainView, sampled=trajectory.sampled)
    if not trajectory.sampled:
        return NoView.PROMPT
    try:
        replay = replayed(trajectory, task, form, budgets)
    except EnvironmentFault:
        return NoView.FAULT
    if isinstance(replay, NoView):
        return replay
    dependence = _cue_dependence(trajectory, replay, form)
    if dependence is not None:
        return NoView(dependence)
    return replay.record.sample(trajectory.seed).extended(PlainView, sampled=tuple(replay.sampled))


def replayed(
    trajectory: Trajectory, task: Task, form: ChatFormat, budgets: Budgets, interface: Interface = Interface.plain()
) -> TokenDialogue | NoView:
    """The finished dialogue of the sampled tokens under an interface, or how it differs."""
    replay = TokenDialogue(task, form, interface=interface, protocol=trajectory.protocol, context=budgets.context)
    if len(replay) > budgets.prompt:
        return NoView.PROMPT
    # A completion that was cut by its budget, which only the last can be, was not acted on.
    acted_on = sum(map(len, trajectory.trace.turns))
    for place, span in enumerate(trajectory.sampled):
        if replay.dialogue.over:
            break
        tokens = slice(span.begin, span.end)
        if len(replay) + span.end - span.begin > budgets.context:
            return NoView.CONTEXT
        replay.say(trajectory.token_ids_T[tokens], trajectory.sampled_logprobs_T[tokens], trajectory.versions_T[tokens])
        if place < acted_on:
            replay.act()
    finished = replay.dialogue.over
    replay.dialogue.truncate()
    if trajectory.reward != float(replay.dialogue.success):
        return NoView.REWARD
    if trajectory.diagnosis != replay.dialogue.diagnosis or finished != (trajectory.end is End.FINISHED):
        return NoView.LABELS
    return replay if trajectory.trace == replay.dialogue.trace else NoView.TRACE


def _cue_dependence(trajectory: Trajectory, replay: TokenDialogue, form: ChatFormat) -> CueDependence | None:
    """The first dependence of a completion on a cue."""
    finder = CueDependenceFinder(form)
    steps = [step for turn in trajectory.trace.turns for step in turn]
    shown_from = plain_from = 0
    for shown, plain, step in zip_longest(trajectory.sampled, replay.sampled, steps):
        plain_ids = tuple(replay.record.token_ids_T[plain_from : plain.begin])
        finder.read(trajectory.token_ids_T[shown_from : shown.begin], plain_ids)
        calls = [] if step is None else [record.call for record in step.calls]
        dependence = finder.find(trajectory.token_ids_T[shown.begin : shown.end], calls)
        if dependence is not None:
            return dependence
        shown_from, plain_from = shown.end, plain.end
    return None
