"""Samplers: which tasks of the stream are drawn (`environment.sampler`)."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from envs.errors import EnvironmentFault, UserError
from envs.task import JSON, Task
from seal_ray.algorithm.sampling.groups import PlayedGroup, TaskStream
from seal_ray.config.sections import Environment
from seal_ray.grpo.arms import PLAIN
from seal_ray.report.metrics import mean

_PRIOR = 0.5
"""Success that is assumed where nothing was played: the weight is then 1."""
_RATE = 0.3
"""Weight of a group in the decayed mean; what was before it counts 0.7 times as much."""


class TaskSampler(Protocol):
    """Draws the tasks of groups. What is drawn follows from the seed and from the rewards of earlier rounds."""

    def draw(self, numbers: range) -> list[str]:
        """The ids of the tasks of the groups with these numbers, which follow on those that were drawn last."""
        ...

    def upcoming(self, numbers: range) -> Iterator[Task]:
        """The tasks that groups with these numbers can have, without any that is broken. It draws none."""
        ...

    def observe(self, groups: Sequence[PlayedGroup]) -> None:
        """Takes note of a round's groups."""
        ...

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        ...

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`. An empty state is that of a run that had another sampler."""
        ...


class UniformSampler:
    """The stream as it is: the group of a number has the task of that number."""

    def __init__(self, stream: TaskStream) -> None:
        self._stream = stream

    def draw(self, numbers: range) -> list[str]:
        return [self._stream.task_id(number) for number in numbers]

    def upcoming(self, numbers: range) -> Iterator[Task]:
        return self._stream.tasks(numbers)

    def observe(self, groups: Sequence[PlayedGroup]) -> None:
        """It has no memory."""

    def get_state(self) -> dict[str, JSON]:
        return {}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Nothing to set."""


class SuccessSampler:
    """Passes over tasks whose groups would be at 0 or 1, by a memory of success.

    The stream offers its tasks in their order, as ever. Each is drawn with the probability
    `w = floor + (1 − floor) · 4p(1 − p)` and passed over otherwise, by a random number of its own that follows from the
    seed and its place in the stream. 4p(1 − p) is the variance of a success or failure over its largest value, as in
    the curator's reward `frontier`. With `0 < floor <= 1` no task is given up.

    `p` is the mean success of earlier groups, decayed, from 0.5 on. A finite set of tasks has one for each task, in a
    mixture too. Where tasks never come twice, it is that of their category, number of turns and number of ground-truth
    calls, which is what a `Task` tells of its difficulty.

    Dialogues on the plain interface alone count, of which each round has some: other interfaces come and go, and
    success under them tells nothing about the task without them. A round draws with the memory of the rounds before.
    """

    def __init__(self, stream: TaskStream, *, floor: float, seed: int) -> None:
        self._stream = stream
        self._floor = floor
        self._seed = seed
        self._next = 0
        self._success: dict[str, float] = {}

    def draw(self, numbers: range) -> list[str]:
        # A run that had no memory before this round has drawn a task for each of its groups.
        self._next = max(self._next, numbers.start)
        drawn: list[str] = []
        while len(drawn) < len(numbers):
            task = self._stream.task_id(self._next)
            if self._chance(self._next) < self.weight(task):
                drawn.append(task)
            self._next += 1
        return drawn

    def upcoming(self, numbers: range) -> Iterator[Task]:
        """The tasks that come up until as many as these are drawn for sure, whatever their weights will be."""
        found: dict[str, int] = {}
        place, sure = max(self._next, numbers.start), 0
        while sure < len(numbers):
            found.setdefault(self._stream.task_id(place), place)
            sure += self._chance(place) < self._floor
            place += 1
        yield from self._stream.tasks(found.values())

    def observe(self, groups: Sequence[PlayedGroup]) -> None:
        for group in groups:
            plain = group.by_arm().get(PLAIN)
            if plain:
                key = self._key(group.plan.task)
                before = self._success.get(key, _PRIOR)
                self._success[key] = before + _RATE * (mean(each.reward for each in plain) - before)

    def weight(self, task_id: str) -> float:
        """The probability with which the task is drawn when it comes up."""
        p = self._success.get(self._key(task_id), _PRIOR)
        return self._floor + (1.0 - self._floor) * 4.0 * p * (1.0 - p)

    def get_state(self) -> dict[str, JSON]:
        return {"next": self._next, "success": dict(self._success)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._next = state.get("next", 0)
        self._success = dict(state.get("success", {}))

    def _chance(self, place: int) -> float:
        return random.Random(f"sampler {self._seed} {place}").random()

    def _key(self, task_id: str) -> str:
        if self._stream.comes_again(task_id):
            return task_id
        try:
            task = self._stream.task(task_id)
        except (EnvironmentFault, UserError):
            return task_id  # it is played, lost and counted
        calls = sum(len(turn.ground_truth) for turn in task.turns)
        return f"{task.category}, {len(task.turns)} turns, {calls} calls"


def make_sampler(environment: Environment, stream: TaskStream, seed: int) -> TaskSampler:
    """The sampler that `environment.sampler` names."""
    if environment.sampler == "uniform":
        return UniformSampler(stream)
    return SuccessSampler(stream, floor=environment.sampler_floor, seed=seed)
