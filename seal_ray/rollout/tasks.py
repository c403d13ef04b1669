"""`TaskStream`: the training tasks of a run by number."""

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

from envs.errors import EnvironmentFault, UserError
from envs.mixture import MixedPool
from envs.sources import TaskPool, get_source
from envs.task import Task
from seal_ray.config.schema import EnvironmentSection


def training_pool(environment: EnvironmentSection) -> TaskPool:
    """The pool of training tasks, with categories in the source's order. Raises `UserError` for unknown names."""
    source = get_source(environment.source)
    chosen = source.categories if environment.categories is None else environment.categories
    return source.pool(
        environment.split,
        split_scheme=environment.split_scheme,
        difficulty=environment.difficulty if source.takes_difficulty else None,
        categories=[category for category in source.categories if category in chosen],
    )


class TaskStream:
    """Endless tasks: task n depends only on the settings and the seed.

    A finite set of tasks is repeated in epochs, each in its own order. An endless source gives each seed other tasks;
    the first `environment.tasks` are the same for all seeds. Raises `UserError` if there is no task.
    """

    def __init__(self, environment: EnvironmentSection, seed: int) -> None:
        self._source = get_source(environment.source)
        self._seed = seed
        self._pool = training_pool(environment)
        sizes = [size for size in (self._pool.size, environment.tasks) if size is not None]
        self._size = min(sizes, default=None)
        if isinstance(self._pool, MixedPool) and environment.tasks is not None:
            different = len({self._pool.task_id(number) for number in range(environment.tasks)})
            if different < environment.tasks:
                raise UserError(
                    f"environment.tasks: of {environment.tasks} tasks in the mixture's shares {different} are "
                    "different; take fewer, or give a finite source a smaller share."
                )
        if self._size == 0:
            scheme = "" if environment.split_scheme is None else f" of {environment.split_scheme!r}"
            raise UserError(f"environment.split: {environment.split!r}{scheme} has no tasks of these categories.")

    def task_id(self, number: int) -> str:
        """The id of the task with that number, from 0."""
        if self._size is None:
            return self._pool.task_id(number, self._seed)
        epoch, place = divmod(number, self._size)
        return self._pool.task_id(self._order(epoch)[place])

    def task(self, task_id: str) -> Task:
        """The task of that id. Raises `EnvironmentFault` or `UserError` if it is broken."""
        return self._source.task(task_id)

    def category(self, task_id: str) -> str:
        """The category of a task; empty if it is broken."""
        try:
            return str(self.task(task_id).category)
        except (EnvironmentFault, UserError):
            return ""

    def tasks(self, numbers: Iterable[int]) -> Iterator[Task]:
        """The tasks with these numbers, without broken ones."""
        for number in numbers:
            with suppress(EnvironmentFault, UserError):
                yield self.task(self.task_id(number))

    @property
    def finite_set(self) -> list[Task]:
        """All training tasks if their number is finite, else none."""
        return list(self.tasks(range(self._size or 0)))

    @lru_cache(maxsize=2)  # noqa: B019 - a run has one stream, which lives as long as it
    def _order(self, epoch: int) -> tuple[int, ...]:
        assert self._size is not None
        order = list(range(self._size))
        random.Random(f"tasks {self._seed} {epoch}").shuffle(order)
        return tuple(order)
