"""What a composed task may not share with other tasks.

A value is a task's own where a slot of one of its requests holds it that a split owns: a name, a title, a message, a
number of the lexicon. A composed task **shares** something with another task where the two have in common

* a user text that names one of the composed task's own values, or all user texts in their order;
* a ground-truth call that carries one of these values, or all ground-truth calls in their order.

Texts and calls without such a value ("List the files here.", `ls()`) belong to nobody. Two tasks have **the same
story** where all their user texts, or all their ground-truth calls, are the same in their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envs.task import Task
from envs.toolworld.compose import Composition
from envs.toolworld.requests import owned_values, values_of
from envs.toolworld.soundness import mentions


class KnownTasks:
    """Tasks that composed ones are held against."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._texts: set[str] = set()
        self._calls: set[str] = set()
        self._stories: set[tuple[str, ...]] = set()
        for task in tasks:
            self.add(task)

    def add(self, task: Task) -> None:
        self._texts.update(_texts(task))
        self._calls.update(_calls(task))
        self._stories.update(_stories(task))

    def shared(self, made: Composition) -> str | None:
        """What the task shares with one of these, as a phrase; None where it shares nothing."""
        own = {value for beats in made.beats for beat in beats for value in owned_values(beat)}
        for text in _texts(made.task):
            if text in self._texts and any(mentions(text, value) for value in own):
                return f"the user text {text!r:.80}"
        for turn in made.task.turns:
            for call in turn.ground_truth:
                if str(call) in self._calls and any(value.lstrip("#@") in own for value in values_of(call)):
                    return f"the call {call!s:.80}"
        return self.story(made.task)

    def story(self, task: Task) -> str | None:
        """Which part of its story is that of one of these, as a phrase; None where it is another story."""
        texts, calls = _stories(task)
        return "all user texts" if texts in self._stories else "all calls" if calls in self._stories else None


def _texts(task: Task) -> Iterator[str]:
    return (turn.user for turn in task.turns if turn.user is not None)


def _calls(task: Task) -> Iterator[str]:
    return (str(call) for turn in task.turns for call in turn.ground_truth)


def _stories(task: Task) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return ("user", *_texts(task)), ("calls", *_calls(task))
