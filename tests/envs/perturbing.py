"""Perturbed trajectories, made from a ground truth. The kinds are in `perturbations`."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from envs.diagnosis import Label
from envs.task import JSON, Task, ToolCall
from tests.envs.players import Action

BROKEN = '<tool_call>\n{"name": "cd", "arguments": {"folder": \n</tool_call>'


@dataclass
class Trajectory:
    """The model's actions in every turn, the kind of perturbation, and the label that its `turn` should get."""

    kind: str
    task: Task
    turns: list[list[Action]]
    turn: int
    expected: Label | None = None
    expected_flags: frozenset[str] = field(default_factory=frozenset)


Kind = Callable[[Task, random.Random], Trajectory | None]
KINDS: dict[str, Kind] = {}


def kind(function: Kind) -> Kind:
    KINDS[function.__name__] = function
    return function


def truth(task: Task) -> list[list[Action]]:
    return [[turn.ground_truth] if turn.ground_truth else [] for turn in task.turns]


def turn_with(task: Task, rng: random.Random, calls: int = 1) -> int | None:
    fitting = [index for index, turn in enumerate(task.turns) if len(turn.ground_truth) >= calls]
    return rng.choice(fitting) if fitting else None


def empty_turn_of(task: Task) -> int | None:
    return next((index for index, turn in enumerate(task.turns) if not turn.ground_truth), None)


def with_call(
    task: Task, rng: random.Random, change: Callable[[ToolCall], ToolCall | None]
) -> tuple[int, list[list[Action]]] | None:
    """Ground truth with one changeable call changed; the turn it is in."""
    places = [(t, c) for t, turn in enumerate(task.turns) for c in range(len(turn.ground_truth))]
    rng.shuffle(places)
    for t, c in places:
        calls = list(task.turns[t].ground_truth)
        changed = change(calls[c])
        if changed is None or sum(call.name == changed.name for call in calls) > 1:
            continue
        calls[c] = changed
        turns = truth(task)
        turns[t] = [tuple(calls)]
        return t, turns
    return None


def call_kind(
    label: Label | None, *, only_last: bool = False
) -> Callable[[Callable[[ToolCall, random.Random, Task], ToolCall | None]], Kind]:
    """Registers a kind that changes one call; the function returns None for a call that it does not apply to.

    `only_last` withholds the label unless the turn ends with the changed call: nothing follows from it then.
    """

    def register(change: Callable[[ToolCall, random.Random, Task], ToolCall | None]) -> Kind:
        def make(task: Task, rng: random.Random) -> Trajectory | None:
            found = with_call(task, rng, lambda call: change(call, rng, task))
            if found is None:
                return None
            turn, turns = found
            calls = turns[turn][0]
            last = isinstance(calls, tuple) and calls[-1] != task.turns[turn].ground_truth[-1]
            return Trajectory(change.__name__, task, turns, turn, label if last or not only_last else None)

        KINDS[change.__name__] = make
        return make

    return register


def turn_kind(
    name: str,
    label: Label | None,
    make: Callable[[Task, random.Random, int], list[Action] | None],
    *,
    least: int = 1,
    empty: bool = False,
    flags: Sequence[str] = (),
) -> None:
    """Registers a kind that replaces one turn's actions; `make` returns None if it does not apply.

    The turn has at least `least` ground-truth calls, or with `empty` none.
    """

    def kind(task: Task, rng: random.Random) -> Trajectory | None:
        turn = empty_turn_of(task) if empty else turn_with(task, rng, least)
        actions = None if turn is None else make(task, rng, turn)
        if turn is None or actions is None:
            return None
        turns = truth(task)
        turns[turn] = actions
        return Trajectory(name, task, turns, turn, label, frozenset(flags))

    KINDS[name] = kind


def replace(call: ToolCall, name: str, value: JSON) -> ToolCall:
    return ToolCall(call.name, {**call.arguments, name: value})
