"""The check that a composed task's ground truth executes, and that every one of its calls is needed."""

from __future__ import annotations

import re

from envs.task import Task
from envs.toolworld.compose import Composition
from envs.verifier import Prepared, differing, prepare

_MAX_RESULTS = 2_000
"""Characters of a task's results at most, so that a dialogue fits into about 1,000 tokens of a small vocabulary."""
_MAX_RESULTS_A_CALL = 350
"""The same for each call, where a task has more calls than the default difficulty gives it."""


def fault_of(made: Composition) -> str | None:
    """Executes the ground truth. Returns what is wrong with the task, as a phrase; None where nothing is.

    No call may fail, every call must be needed for its turn to pass, the results must not grow too long, a value that
    is left out must not have been seen before it is supplied, and one that is to be read must stand in a result.
    """
    task, ready = made.task, prepare(made.task)
    results = [text for truth in ready.turns for text in truth.results]
    if any(any(truth.errors) for truth in ready.turns):
        return "a call of its ground truth fails"
    if sum(map(len, results)) > max(_MAX_RESULTS, _MAX_RESULTS_A_CALL * len(results)):
        return "its results are too long"
    if not _can_be_read(made, ready):
        return "a value that is to be read stands in no result"
    seen: set[str] = set()
    told = ""
    for index, (turn, truth) in enumerate(zip(task.turns, ready.turns, strict=True)):
        told = f"{told}\n{turn.user or ''}"
        if not turn.ground_truth and made.omitted is not None and mentions(told, made.omitted):
            return "the value that is withheld was told before"
        for place, text in enumerate(truth.results):
            # A result that has not appeared before this turn would be missing without its call.
            if text in seen and _can_go_without(task, ready, index, place):
                return f"the call {turn.ground_truth[place].name} is not needed"
        seen.update(truth.results)
        told = "\n".join((told, *truth.results))
    return None


def _can_be_read(made: Composition, ready: Prepared) -> bool:
    """Whether each value that a request reads stands in a result of its turn, or of one before it."""
    answered = [truth.results for turn, truth in zip(made.task.turns, ready.turns, strict=True) if turn.ground_truth]
    shown = ""
    for beats, results in zip(made.beats, answered, strict=True):
        shown = "\n".join((shown, *results))
        if not all(mentions(shown, value) for beat in beats for value in beat.reads):
            return False
    return True


def _can_go_without(task: Task, ready: Prepared, index: int, place: int) -> bool:
    """Whether turn `index` ends in the ground truth's state although its call at `place` is not made."""
    world = ready.start()
    made = [call for turn in task.turns[:index] for call in turn.ground_truth]
    turn = task.turns[index].ground_truth
    for call in (*made, *turn[:place], *turn[place + 1 :]):
        world.execute(call)
    return not differing(world.state(), ready.turns[index].state)


def mentions(text: str, value: str) -> bool:
    """Whether the value stands in the text as a word or number of its own."""
    return value in text and re.search(rf"(?<![\w.]){re.escape(value)}(?!\w)", text) is not None
