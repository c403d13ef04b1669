"""`EngineActor`: an engine in a Ray actor. When the engine dies the actor exits, and Ray restarts it.

Its process imports this file, which does without RLlib: that would take seconds of every engine's start.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from envs.errors import SealError
from policies.engine import Adapter, Engine, EngineDead, GenRequest, GenResult
from policies.engine.stored import StoredWeights
from seal_ray.rollout.priority import lower_process_priority


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """What an engine is started with. `factory` makes another kind of engine than `kind`, in tests for instance.

    `agent` is the agent that owns the engine: the solver, or a curator with an engine of its own.
    """

    kind: str
    model: str
    dialect: str | None
    context: int
    dtype: str
    concurrent: int
    adapters: int = 0
    lora_rank: int = 0
    cache_share: float = 1.0
    gpu_memory_share: float = 0.9
    threads: int | None = None
    factory: Callable[[EngineSpec], Awaitable[Engine]] | None = None
    agent: str = "solver"


@dataclass(frozen=True, slots=True)
class Payload:
    """One version of a policy's weights: all of them, or an adapter on top of the base."""

    policy: str
    version: int
    weights: Mapping[str, Any] | None = None
    adapter: Adapter | None = None


class OutOfReach(SealError, RuntimeError):
    """An engine cannot read the weights that it is to take: they are in the memory of another machine."""


class EngineActor:
    """Serves the `Engine` interface to other processes. A fresh one holds no weights but its model folder's."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self._engine: Engine | None = None
        self._changing = asyncio.Lock()

    async def versions(self) -> Mapping[str, int]:
        """Policy → version that the engine holds after what is under way; starts the engine first."""
        return (await self._settled()).report().versions

    async def generate(self, request: GenRequest, *, version: int) -> GenResult:
        """As `Engine.generate`, with this version of the policy's weights."""
        engine = await self._holding(request.policy, version)
        try:
            return await engine.generate(request)
        except EngineDead:
            await self._exit()
            raise

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str, version: int) -> tuple[float, ...]:
        """As `Engine.score`, with this version of the policy's weights."""
        engine = await self._holding(policy, version)
        try:
            return await engine.score(token_ids, start, policy=policy)
        except EngineDead:
            await self._exit()
            raise

    async def update(self, payloads: Sequence[Awaitable[Payload]]) -> Mapping[str, int]:
        """Delivers weights, with the engine's proof, and returns the versions held. Requests that come meanwhile wait.

        Takes references to the payloads, and waits for these itself: for payloads as arguments Ray would wait before it
        begins the call, and requests that were sent after it could come before it. Raises `OutOfReach` for weights that
        are stored on another machine.
        """
        async with self._changing:
            given = [await payload for payload in payloads]
            for payload in given:
                if isinstance(payload.weights, StoredWeights) and not payload.weights.is_here():
                    raise OutOfReach(f"version {payload.version} of {payload.policy!r} is stored on another machine.")
            engine = await self._ready()
            try:
                for payload in given:
                    if payload.weights is not None:
                        await engine.update_weights(payload.weights, payload.version)
                    if payload.adapter is not None:
                        await engine.update_adapter(payload.policy, payload.adapter, payload.version)
            except EngineDead:
                await self._exit()
                raise
            return engine.report().versions

    def processes(self) -> list[int]:
        """Process ids of the actor and of its engine's core, for tests that kill them."""
        return [os.getpid(), *self._core()]

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()

    def _core(self) -> list[int]:
        """Process ids of the engine's core, where that is not this process."""
        found: list[int] = getattr(self._engine, "processes", list)()
        return found

    async def _ready(self) -> Engine:
        """The engine, started if need be; for whoever holds `_changing`."""
        if self._engine is None:
            gc.disable()  # it would look through what is imported again and again, a quarter of the time
            try:
                self._engine = await start(self._spec)
            finally:
                gc.enable()
            if self._core():
                lower_process_priority()  # what computes is a process of its own
            gc.freeze()  # what is there by now stays; collections, which halt all requests, do not look through it
        return self._engine

    async def _settled(self) -> Engine:
        """The engine, once what changes it is done."""
        async with self._changing:
            return await self._ready()

    async def _holding(self, policy: str, version: int) -> Engine:
        """The engine, if it holds that version. One that was restarted does so once the pool has delivered it."""
        engine = await self._settled()
        if engine.report().versions.get(policy) != version:
            raise EngineDead(f"the engine does not hold version {version} of {policy!r}")
        return engine

    async def _exit(self) -> None:
        # Ray would go on sending requests to an actor whose engine is dead.
        with suppress(Exception):
            await asyncio.wait_for(self.close(), timeout=5.0)
        os._exit(1)


async def start(spec: EngineSpec) -> Engine:
    if spec.factory is not None:
        return await spec.factory(spec)
    from policies.engine.choice import start_engine
    from policies.models import open_model

    return await start_engine(
        spec.kind,
        open_model(spec.model, dialect=spec.dialect),
        context=spec.context,
        dtype=spec.dtype,
        concurrent=spec.concurrent,
        adapters=spec.adapters,
        lora_rank=spec.lora_rank,
        cache_share=spec.cache_share,
        gpu_memory_share=spec.gpu_memory_share,
        threads=spec.threads,
    )
