"""Training tasks in the order they are drawn: number → task id, a pure function of the config and the seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from envs.errors import EnvironmentFault, UserError
from envs.sources import BLOCK, find_task
from envs.task import Task
from seal_ray.config.parts import training_part
from seal_ray.config.sections import Environment


class TaskStream:
    """Tasks without end. A run that goes on at number n draws what an undisturbed run draws there.

    A finite set of tasks is drawn in epochs, each in an order of its own. A part without end is not repeated, and other
    seeds see other tasks. Raises `UserError` where no task is left.
    """

    def __init__(self, environment: Environment, seed: int) -> None:
        self._seed = seed
        self._part = training_part(environment)
        limits = [each for each in (environment.tasks, self._part.size) if each is not None]
        self._set = tuple(map(self._part.task_id, range(min(limits)))) if limits else None
        if self._set is not None and not self._set:
            raise UserError(f"environment.split: {environment.split!r} has no tasks of these categories.")

    def task_id(self, number: int) -> str:
        """The task of the group with that number, from 0."""
        if self._set is not None:
            epoch, place = divmod(number, len(self._set))
            return self._set[self._order(epoch)[place]]
        return self._part.task_id(self._seed * BLOCK + number)

    def tasks(self, numbers: Iterable[int]) -> Iterator[Task]:
        """The tasks of these groups, without any that is broken."""
        for number in numbers:
            with suppress(EnvironmentFault, UserError):
                yield find_task(self.task_id(number))

    @property
    def finite_set(self) -> list[Task]:
        """All training tasks where their number is limited, else none."""
        return list(self.tasks(range(len(self._set)))) if self._set else []

    @lru_cache(maxsize=2)  # noqa: B019 - a run has one stream, which lives as long as it
    def _order(self, epoch: int) -> tuple[int, ...]:
        assert self._set is not None
        order = list(range(len(self._set)))
        random.Random(f"tasks {self._seed} {epoch}").shuffle(order)
        return tuple(order)
