"""The verifier V: executes the ground truth, and compares a dialogue with it turn by turn.

A turn with ground truth passes two checks, as in the official checker: the public state of every simulator equals the
state after the ground truth, and every result of the ground truth's calls in this turn is among all results so far. A
dialogue succeeds if every such turn passes. A task with a goal is judged by it alone, at the end of its last turn.
"""

import copy
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from envs.errors import UserError, faults_of
from envs.task import Task
from envs.trace import text_digest
from envs.world import World

State = Mapping[str, Any]
"""A frozen state: "Class.attribute" → plain value."""


_KEPT_CHARACTERS = 100
"""Length up to which results are stored whole; of longer ones the digest is."""


class Outcome(StrEnum):
    """How a turn ended, as the official checker judges it."""

    PASS = "pass"
    EMPTY_TURN = "empty_turn"
    """Nothing was called in a turn that has ground truth."""
    STATE_MISMATCH = "state_mismatch"
    RESPONSE_MISMATCH = "response_mismatch"
    """The state is right, but a result of the ground truth never appeared."""
    UNSCORED = "unscored"
    """Nothing is checked: the turn has no ground truth, or the task has a goal and this is not the last turn."""
    NOT_REACHED = "not_reached"
    """The dialogue ended before or within this turn."""


@dataclass(frozen=True, slots=True)
class TurnVerdict:
    """The verdict on one turn.

    The attributes ("Class.attribute") in `wrong_state` differ from the ground truth's at the end of the turn, those in
    `wrong_before` at its start. `missing_results` are the ground truth's of this turn that are not among all so far.
    """

    turn: int
    outcome: Outcome
    wrong_state: frozenset[str] = frozenset()
    wrong_before: frozenset[str] = frozenset()
    missing_results: tuple[str, ...] = ()

    @property
    def scorable(self) -> bool:
        """Whether this turn counts towards success: it was reached and checked."""
        return self.outcome not in (Outcome.UNSCORED, Outcome.NOT_REACHED)

    @property
    def passed(self) -> bool:
        return self.outcome is Outcome.PASS


@dataclass(frozen=True, slots=True)
class TruthTurn:
    """The ground truth of one turn, executed: results, which of them are errors, and the state after it."""

    results: tuple[str, ...]
    errors: tuple[bool, ...]
    state: State


@dataclass(frozen=True, slots=True)
class Prepared:
    """A task ready to play: `start` makes fresh worlds; `turns` is the executed ground truth."""

    start: Callable[[], World] = field(repr=False)
    turns: tuple[TruthTurn, ...] = field(repr=False)


_PREPARED: weakref.WeakKeyDictionary[Task, Prepared] = weakref.WeakKeyDictionary()
_PREPARED_LOCK = threading.Lock()


def prepare(task: Task) -> Prepared:
    """Executes the task's ground truth once per `Task` object."""
    with _PREPARED_LOCK:
        ready = _PREPARED.get(task)
    if ready is None:
        ready = _execute_ground_truth(task)
        with _PREPARED_LOCK:
            ready = _PREPARED.setdefault(task, ready)
    return ready


def _execute_ground_truth(task: Task) -> Prepared:
    state: State | None = None
    turns = []
    with faults_of(task.id, "world", UserError):  # such as a missing folder
        start = task.setting.ready()
    with faults_of(task.id, "world"):
        world = start()
        for turn in task.turns:
            results = [world.execute(call) for call in turn.ground_truth]
            state = freeze(world.state(), previous=state)
            turns.append(TruthTurn(tuple(r.text for r in results), tuple(r.is_error for r in results), state))
    return Prepared(start, tuple(turns))


def freeze(state: Mapping[str, Any], previous: State | None = None) -> State:
    """A copy of a state view that later calls cannot change; values equal to `previous` share its objects."""
    known = previous or {}
    same = {key for key, value in state.items() if key in known and known[key] == value}
    return {key: known[key] if key in same else copy.deepcopy(value) for key, value in state.items()}


def differing(state: Mapping[str, Any], truth: State) -> frozenset[str]:
    """The attributes of `truth` that `state` does not equal."""
    if _equal(state, truth):
        return frozenset()
    return frozenset(key for key, value in truth.items() if key not in state or not _equal(state[key], value))


def _key(result: str) -> str | bytes:
    """The stored form of a result: a short one in full, the digest of a long one."""
    return result if len(result) <= _KEPT_CHARACTERS else text_digest(result).encode()


def _equal(value: Any, truth: Any) -> bool:
    try:
        return bool(value == truth)
    except RecursionError:  # a value nested too deeply to compare is not the ground truth's
        return False


class Verifier:
    """Judges one dialogue: tell it of calls, feed it every whole result, end every turn, read the verdicts."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._truth = prepare(task).turns
        self._results: Counter[str | bytes] = Counter()
        self._called = False
        self._verdicts: list[TurnVerdict] = []

    @property
    def verdicts(self) -> tuple[TurnVerdict, ...]:
        return tuple(self._verdicts)

    @property
    def turn(self) -> int:
        """The current turn, 0-based; the number of turns once all have a verdict."""
        return len(self._verdicts)

    @property
    def finished(self) -> bool:
        return len(self._verdicts) == len(self._truth)

    @property
    def failed(self) -> bool:
        """Whether a checked turn did not pass, so that the dialogue cannot succeed."""
        return any(verdict.scorable and not verdict.passed for verdict in self._verdicts)

    @property
    def success(self) -> bool:
        """Whether all turns are done and every checked turn passed."""
        return self.finished and all(v.passed or v.outcome is Outcome.UNSCORED for v in self._verdicts)

    def saw(self, result: str) -> bool:
        """Whether this result text has appeared so far."""
        return self._results[_key(result)] > 0

    def add_calls(self) -> None:
        """Notes that the turn has calls, executed or not."""
        self._called = True

    def add_result(self, result: str) -> None:
        self._results[_key(result)] += 1

    def end_turn(self, state: Mapping[str, Any]) -> TurnVerdict:
        """Judges the current turn, which ends in this state, and moves to the next."""
        verdict = self._by_truth(state) if self._task.goal is None else self._by_goal(self._task.goal, state)
        self._verdicts.append(verdict)
        self._called = False
        return verdict

    def _by_goal(self, goal: Callable[[Mapping[str, Any]], bool], state: Mapping[str, Any]) -> TurnVerdict:
        if self.turn < len(self._truth) - 1:
            return TurnVerdict(self.turn, Outcome.UNSCORED)
        with faults_of(self._task.id, "goal"):
            reached = goal(state)
        return TurnVerdict(self.turn, Outcome.PASS if reached else Outcome.STATE_MISMATCH)

    def _by_truth(self, state: Mapping[str, Any]) -> TurnVerdict:
        turn = self.turn
        truth = self._truth[turn]
        wrong = differing(state, truth.state)
        needed = Counter(truth.results)
        missing = tuple(result for result, count in needed.items() if self._results[_key(result)] < count)
        if not self._task.turns[turn].ground_truth:
            outcome = Outcome.UNSCORED
        elif not self._called:
            outcome = Outcome.EMPTY_TURN
        elif wrong:
            outcome = Outcome.STATE_MISMATCH
        elif missing:
            outcome = Outcome.RESPONSE_MISMATCH
        else:
            outcome = Outcome.PASS
        before = self._verdicts[-1].wrong_state if self._verdicts else frozenset()
        return TurnVerdict(turn, outcome, wrong, before, missing)

    def abandon(self) -> None:
        """Marks every turn without a verdict as not reached."""
        for turn in range(len(self._verdicts), len(self._truth)):
            before = self._verdicts[-1].wrong_state if self._verdicts else frozenset()
            self._verdicts.append(TurnVerdict(turn, Outcome.NOT_REACHED, before, before))
