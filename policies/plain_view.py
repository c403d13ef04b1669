"""The plain view of a trajectory: the dialogue that its sampled tokens would have been on the plain interface.

An interface changes what is shown, never what a call does. So a trajectory that was played under cues can be replayed
without them: a fresh plain dialogue of its task, and for each completion the very tokens that were sampled. The world
answers as it did, and only what was read between the completions is another.

A rollout can lean on its cues all the same: `CueDependence` says how. Such a rollout has no plain view.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from envs.errors import EnvironmentFault
from envs.interface import Interface
from envs.task import Task
from envs.trace import Trace
from policies.cue_dependence import CueDependence, CueDependenceFinder
from policies.prompting import ChatFormat
from policies.sample import Sample
from policies.solver import Budgets
from policies.token_dialogue import TokenDialogue
from policies.trajectory import End, Sampled, Trajectory, interface_id


class NoView(StrEnum):
    """Why a trajectory has no plain view."""

    PROMPT = "prompt"
    """Its opening, as it was shown or plain, is longer than the prompt budget, or left no room to sample."""
    CONTEXT = "context"
    """With the plain texts its completions do not fit into the context."""
    REWARD = "reward"
    """The replay is judged otherwise."""
    LABELS = "labels"
    """The replay is diagnosed otherwise, or ends elsewhere."""
    TRACE = "trace"
    """The replay's calls, results or errors are others: for instance, feedback took the room of a result."""
    FAULT = "fault"
    """The task's world or user failed in the replay."""
    CRUTCH_QUOTE = str(CueDependence.QUOTE)
    """A completion quotes a cue: `CueDependence.QUOTE`."""
    CRUTCH_VALUE = str(CueDependence.VALUE)
    """A call uses what only a cue told: `CueDependence.VALUE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainView(Sample):
    """A trajectory's sampled tokens with the plain texts between them, T tokens in all.

    The n-th sampled token is the n-th that the trajectory sampled, `sampled[n]` the place of its n-th completion.
    `sampled_logprobs_T` (nats) and `versions_T` are the trajectory's: log-probs under the interface that was shown, not
    under the plain one. Reward, diagnosis, trace and end are the trajectory's too.
    """

    sampled: tuple[Sampled, ...]


def plain_view(trajectory: Trajectory, task: Task, form: ChatFormat, budgets: Budgets) -> PlainView | NoView:
    """The plain view of a trajectory, or why there is none. A plain trajectory is its own view and is not replayed.

    `task`, `form` and `budgets` are those that it was played with. A task's user must give the same answers again.
    Nothing in a trajectory makes this raise.
    """
    if trajectory.interface == interface_id(Interface.plain()):
        return _view(trajectory, trajectory.sampled)
    if not trajectory.sampled:
        return NoView.PROMPT
    try:
        replay = _replay(trajectory, task, form, budgets)
    except EnvironmentFault:
        return NoView.FAULT
    if isinstance(replay, NoView):
        return replay
    crutch = _crutch(trajectory, replay, form)
    return _view(replay.record.sample(trajectory.seed), replay.sampled) if crutch is None else NoView(crutch)


def _view(sample: Sample, sampled: Sequence[Sampled]) -> PlainView:
    return PlainView(
        seed=sample.seed,
        token_ids_T=sample.token_ids_T,
        mask_T=sample.mask_T,
        sampled_logprobs_T=sample.sampled_logprobs_T,
        versions_T=sample.versions_T,
        sampled=tuple(sampled),
    )


def _replay(
    trajectory: Trajectory, task: Task, form: ChatFormat, budgets: Budgets, interface: Interface = Interface.plain()
) -> TokenDialogue | NoView:
    """The dialogue that the sampled tokens are under an interface, at its end; or how it differs."""
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
    if not _same_trace(trajectory.trace, replay.dialogue.trace):
        return NoView.TRACE
    return replay


def _same_trace(first: Trace, second: Trace) -> bool:
    return first == second or _same(astuple(first), astuple(second))


def _same(first: Any, second: Any) -> bool:
    """Whether plain values are equal, where NaN is equal to NaN: a call can have it as an argument."""
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(_same(value, second[key]) for key, value in first.items())
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second or (first != first and second != second))


def _crutch(trajectory: Trajectory, replay: TokenDialogue, form: ChatFormat) -> CueDependence | None:
    """The first crutch of the trajectory's completions."""
    finder = CueDependenceFinder(form)
    steps = [step for turn in trajectory.trace.turns for step in turn]
    shown_from = plain_from = 0
    for shown, plain, step in zip_longest(trajectory.sampled, replay.sampled, steps):
        finder.read(
            trajectory.token_ids_T[shown_from : shown.begin], tuple(replay.record.token_ids_T[plain_from : plain.begin])
        )
        calls = [] if step is None else [record.call for record in step.calls]
        crutch = finder.crutch(trajectory.token_ids_T[shown.begin : shown.end], calls)
        if crutch is not None:
            return crutch
        shown_from, plain_from = shown.end, plain.end
    return None
