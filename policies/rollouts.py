"""Many dialogues at once against one engine. An engine that dies is restarted, and its dialogues are played again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from envs.dialogue import Protocol
from envs.errors import EnvironmentFault
from envs.interface import Interface
from envs.task import Task
from envs.text import valid_text
from policies.engine import Engine, EngineDead
from policies.solver import Solver
from policies.trajectory import Trajectory

T = TypeVar("T")

MAX_RESTARTS = 3
"""Restarts without finished work between them, after which an engine is given up."""


class EngineRestarter:
    """Restarts an engine that died, once for all that saw it die, and gives up where it keeps dying.

    `what` is the work whose end shows that the engine works: a dialogue, an item. `restarts` are counted.
    """

    def __init__(self, engine: Engine, what: str) -> None:
        self._engine = engine
        self._what = what
        self._lock = asyncio.Lock()
        self._fruitless = 0
        self.restarts = 0

    def worked(self) -> None:
        """Something was finished, so that the next death is the first again."""
        self._fruitless = 0

    async def restart(self, seen: int) -> None:
        """Restarts the engine where nobody else did since `seen` restarts. Raises `EngineDead` where it keeps dying."""
        async with self._lock:
            if self.restarts != seen:
                return
            if self._fruitless == MAX_RESTARTS:
                raise EngineDead(f"the engine died again after {MAX_RESTARTS} restarts without a finished {self._what}")
            await self._engine.restart()
            self.restarts += 1
            self._fruitless += 1


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """One dialogue to play. The seed repeats it."""

    task: Task
    seed: int
    interface: Interface = Interface.plain()
    protocol: Protocol = Protocol.OFFICIAL


@dataclass(frozen=True, slots=True)
class Fault:
    """A dialogue that could not be played, through no fault of the solver: what kind of error, and its message."""

    task: str
    seed: int
    kind: str
    message: str


class Rollouts:
    """Plays jobs with a solver, at most `concurrent` at a time over all calls. `restarts` counts engine restarts."""

    def __init__(self, solver: Solver, *, concurrent: int = 64) -> None:
        self._solver = solver
        self._slots = asyncio.Semaphore(concurrent)
        self._patience = EngineRestarter(solver.engine, "dialogue")

    @property
    def restarts(self) -> int:
        return self._patience.restarts

    async def play(self, jobs: Sequence[RolloutJob]) -> AsyncGenerator[tuple[int, Trajectory], None]:
        """Yields (place in `jobs`, trajectory) as dialogues end.

        A dialogue whose engine died is played again from its start with the same seed, so that results do not depend on
        deaths. Raises `EngineDead` where the engine keeps dying, and whatever else a dialogue raises; dialogues under
        way are then cancelled, as they are where the iterator is closed.
        """

        async def play_one(place: int) -> tuple[int, Trajectory]:
            async with self._slots:
                return place, await self._until_done(jobs[place])

        async with _under_way(map(play_one, range(len(jobs)))) as playing:
            for done in asyncio.as_completed(playing):
                yield await done

    async def play_or_fault(
        self, jobs: Sequence[RolloutJob], *, retries: int, check: Callable[[Trajectory], None]
    ) -> list[Trajectory | Fault]:
        """One trajectory or fault for each job, in their order.

        A dialogue whose environment faults, or whose trajectory `check` refuses with a `ValueError`, is played again up
        to `retries` times and then given as a `Fault`. Raises what an engine raises that cannot be restarted.
        """

        async def play_one(job: RolloutJob) -> Trajectory | Fault:
            for left in range(retries, -1, -1):
                try:
                    async with self._slots:
                        trajectory = await self._until_done(job)
                    check(trajectory)
                except (EnvironmentFault, ValueError) as error:
                    if not left:
                        return Fault(job.task.id, job.seed, type(error).__name__, valid_text(str(error))[:500])
                else:
                    return trajectory
            raise AssertionError("the last try returns")

        async with _under_way(map(play_one, jobs)) as playing:
            return await asyncio.gather(*playing)

    async def _until_done(self, job: RolloutJob) -> Trajectory:
        while True:
            seen = self.restarts
            try:
                trajectory = await self._solver.play(
                    job.task, seed=job.seed, interface=job.interface, protocol=job.protocol
                )
            except EngineDead:
                await self._patience.restart(seen)
            else:
                self._patience.worked()
                return trajectory


@asynccontextmanager
async def _under_way(work: Iterable[Coroutine[Any, Any, T]]) -> AsyncGenerator[list[asyncio.Task[T]], None]:
    """Tasks that do the work; those not done at the end are cancelled."""
    tasks = [asyncio.create_task(each) for each in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
