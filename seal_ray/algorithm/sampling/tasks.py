"""Training tasks in the order they are drawn: number → task id, a pure function of the config and the seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from envs.errors import EnvironmentFault, UserError
from envs.sources import TaskPool, get_source
from envs.task import Task
from seal_ray.config.sections import Environment


def training_pool(environment: Environment) -> TaskPool:
    """The tasks that can be drawn, the categories in the source's order. Raises `UserError` for unknown names."""
    source = get_source(environment.source)
    chosen = source.categories if environment.categories is None else environment.categories
    return source.pool(
        environment.split,
        division=environment.division,
        difficulty=environment.difficulty if source.takes_difficulty else None,
        categories=[category for category in source.categories if category in chosen],
    )


class TaskStream:
    """Tasks without end. A run that goes on at number n draws what an undisturbed run draws there.

    A finite set of tasks is gone through in epochs, each in an order of its own; a source without end gives other seeds
    other tasks. Raises `UserError` where no task is left.
    """

    def __init__(self, environment: Environment, seed: int) -> None:
        self._source = get_source(environment.source)
        self._seed = seed
        self._pool = training_pool(environment)
        sizes = [size for size in (self._pool.size, environment.tasks) if size is not None]
        self._size = min(sizes, default=None)
        if self._size == 0:
            division = "" if environment.division is None else f" of {environment.division!r}"
            raise UserError(f"environment.split: {environment.split!r}{division} has no tasks of these categories.")

    def task_id(self, number: int) -> str:
        """The task of the group with that number, from 0."""
        if self._size is None:
            return self._pool.task_id(number, self._seed)
        epoch, place = divmod(number, self._size)
        return self._pool.task_id(self._order(epoch)[place])

    def tasks(self, numbers: Iterable[int]) -> Iterator[Task]:
        """The tasks of these groups, without any that is broken."""
        for number in numbers:
            with suppress(EnvironmentFault, UserError):
                yield self._source.task(self.task_id(number))

    @property
    def finite_set(self) -> list[Task]:
        """All training tasks where their number is limited, else none."""
        return list(self.tasks(range(self._size or 0)))

    @lru_cache(maxsize=2)  # noqa: B019 - a run has one stream, which lives as long as it
    def _order(self, epoch: int) -> tuple[int, ...]:
        assert self._size is not None
        order = list(range(self._size))
        random.Random(f"tasks {self._seed} {epoch}").shuffle(order)
        return tuple(order)
