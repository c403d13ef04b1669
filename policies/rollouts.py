"""Many dialogues at once on one engine. A dead engine is restarted, and its dialogues are played again."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from envs.dialogue import Protocol
from envs.errors import EnvironmentFault
from envs.interface import Interface
from envs.task import Task
from envs.text import valid_text
from policies.engine import EngineDead, Sampler
from policies.solver import Solver
from policies.trajectory import Trajectory
from policies.turn_start import TurnStart

T = TypeVar("T")

MAX_RESTARTS = 3
"""Restarts without finished work between them, after which an engine is given up."""


class EngineRestarter:
    """Restarts a dead engine, once for all work that it interrupted, and gives up if it keeps dying.

    `what` names a piece of work in the error: a dialogue, an item. `restarts` counts them.
    """

    def __init__(self, engine: Sampler, what: str) -> None:
        self._engine = engine
        self._what = what
        self._lock = asyncio.Lock()
        self._fruitless = 0
        self.restarts = 0

    async def until_done(self, work: Callable[[], Awaitable[T]]) -> T:
        """Awaits the work, from its start again after each restart. Raises `EngineDead` if the engine keeps dying."""
        while True:
            before = self.restarts
            try:
                result = await work()
            except EngineDead:
                await self._restart(before)
            else:
                self._fruitless = 0
                return result

    async def _restart(self, before: int) -> None:
        """Restarts the engine, unless that was done since there were `before` restarts."""
        async with self._lock:
            if self.restarts != before:
                return
            if self._fruitless == MAX_RESTARTS:
                raise EngineDead(f"the engine died again after {MAX_RESTARTS} restarts without a finished {self._what}")
            await self._engine.restart()
            self.restarts += 1
            self._fruitless += 1


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """One dialogue to play, or one turn from its `start`. The seed repeats it."""

    task: Task
    seed: int
    interface: Interface = Interface.plain()
    protocol: Protocol = Protocol.OFFICIAL
    start: TurnStart | None = None


@dataclass(frozen=True, slots=True)
class Fault:
    """A dialogue that could not be played because its environment failed: the type of the error, and its message."""

    task: str
    seed: int
    kind: str
    message: str


class Rollouts:
    """Plays jobs with a solver, at most `concurrent` at a time over all calls."""

    def __init__(self, solver: Solver, *, concurrent: int = 64) -> None:
        self._solver = solver
        self._slots = asyncio.Semaphore(concurrent)
        self._restarter = EngineRestarter(solver.engine, "dialogue")

    @property
    def restarts(self) -> int:
        """Restarts of the engine."""
        return self._restarter.restarts

    async def play(self, jobs: Sequence[RolloutJob]) -> AsyncGenerator[tuple[int, Trajectory], None]:
        """Yields (place in `jobs`, trajectory) as dialogues end.

        After a restart of the engine a dialogue is played again with the same seed, so that results do not depend on
        deaths. Raises `EngineDead` if the engine keeps dying, and whatever else a dialogue raises; running dialogues
        are then cancelled, as when the iterator is closed.
        """

        async def play_one(place: int) -> tuple[int, Trajectory]:
            return place, await self._play(jobs[place])

        async with _running(map(play_one, range(len(jobs)))) as tasks:
            for done in asyncio.as_completed(tasks):
                yield await done

    async def play_or_fault(
        self, jobs: Sequence[RolloutJob], *, retries: int, check: Callable[[Trajectory], None]
    ) -> list[Trajectory | Fault]:
        """One trajectory or fault for each job, in their order.

        A dialogue is played again, `retries` times at most, if its environment fails or `check` raises `ValueError` for
        its trajectory. Raises the errors of an engine that cannot be restarted.
        """

        async def play_one(job: RolloutJob) -> Trajectory | Fault:
            for left in range(retries, -1, -1):
                try:
                    trajectory = await self._play(job)
                    check(trajectory)
                except (EnvironmentFault, ValueError) as error:
                    if not left:
                        return Fault(job.task.id, job.seed, type(error).__name__, valid_text(str(error))[:500])
                else:
                    return trajectory
            raise AssertionError("the last try returns")

        async with _running(map(play_one, jobs)) as tasks:
            return await asyncio.gather(*tasks)

    async def _play(self, job: RolloutJob) -> Trajectory:
        settings = {name: getattr(job, name) for name in ("seed", "interface", "protocol", "start")}
        async with self._slots:
            return await self._restarter.until_done(lambda: self._solver.play(job.task, **settings))


@asynccontextmanager
async def _running(work: Iterable[Coroutine[Any, Any, T]]) -> AsyncGenerator[list[asyncio.Task[T]], None]:
    """Tasks that do the work; unfinished ones are cancelled at the end."""
    tasks = [asyncio.create_task(coroutine) for coroutine in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
