"""Training tasks in the order they are drawn: number → task id, a pure function of the config and the seed."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from envs.bfcl.splits import get_split
from envs.catalog import find_task
from envs.errors import EnvironmentFault, UserError
from envs.task import Category, Task
from envs.toolworld.difficulty import difficulty_of
from envs.toolworld.generation import BLOCK, task_name
from seal_ray.config.sections import Environment
from seal_ray.evaluation.plan import in_turn


class TaskStream:
    """Tasks without end. A run that goes on at number n draws what an undisturbed run draws there.

    A finite set of tasks is gone through in epochs, each in an order of its own; the toolworld's own set has no end,
    and other seeds see other tasks. Raises `UserError` where no task is left.
    """

    def __init__(self, environment: Environment, seed: int) -> None:
        self._environment = environment
        self._seed = seed
        self._categories = [category for category in Category if category in environment.categories]
        self._set = self._finite_set()

    def task_id(self, number: int) -> str:
        """The task of the group with that number, from 0."""
        if self._set is not None:
            epoch, place = divmod(number, len(self._set))
            return self._set[self._order(epoch)[place]]
        return self._named(self._seed * BLOCK + number)

    def tasks(self, numbers: Iterable[int]) -> Iterator[Task]:
        """The tasks of these groups, without any that is broken."""
        for number in numbers:
            with suppress(EnvironmentFault, UserError):
                yield find_task(self.task_id(number))

    @property
    def finite_set(self) -> list[Task]:
        """All training tasks where their number is limited, else none."""
        return list(self.tasks(range(len(self._set)))) if self._set else []

    def _finite_set(self) -> tuple[str, ...] | None:
        environment = self._environment
        if environment.source == "toolworld":
            count = environment.tasks
            return None if count is None else tuple(self._named(number) for number in range(count))
        part = get_split(environment.bfcl_split).part(environment.split)
        chosen = itertools.islice(in_turn(part, self._categories), environment.tasks)
        found = tuple(task.id for task in chosen)
        if not found:
            raise UserError(
                f"environment.split: {environment.split!r} of {environment.bfcl_split!r} has no tasks of these "
                "categories."
            )
        return found

    def _named(self, number: int) -> str:
        environment = self._environment
        difficulty = difficulty_of(environment.difficulty)
        category = self._categories[number % len(self._categories)]
        return task_name(number, split=environment.split, category=category, difficulty=difficulty)

    @lru_cache(maxsize=2)  # noqa: B019 - a run has one stream, which lives as long as it
    def _order(self, epoch: int) -> tuple[int, ...]:
        assert self._set is not None
        order = list(range(len(self._set)))
        random.Random(f"tasks {self._seed} {epoch}").shuffle(order)
        return tuple(order)
