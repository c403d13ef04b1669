"""`EngineActor`: an engine in a Ray actor. When the engine dies the actor exits, and Ray restarts it.

This file does not import RLlib, which would slow down every engine's start by seconds.
"""

import asyncio
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any

from envs.errors import SealError
from policies.engine import Adapter, DeliveryError, Engine, EngineDead, GenRequest, GenResult
from policies.engine.buckets import Bucket
from policies.engine.stored import StoredWeights
from seal_ray.rollout.priority import lower_process_priority


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Arguments of an engine's start. `factory` makes a custom engine, for tests; `agent` is the owner."""

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
    tensor_parallel: int = 1
    can_sleep: bool = False
    batch_invariant: bool = False
    factory: Callable[["EngineSpec"], Awaitable[Engine]] | None = None
    agent: str = "solver"


@dataclass(frozen=True, slots=True)
class Payload:
    """One version of a policy's weights: all of them, some in a bucket, or an adapter on top of the base."""

    policy: str
    version: int
    weights: Mapping[str, Any] | None = None
    bucket: Bucket | None = None
    adapter: Adapter | None = None


class OutOfReach(SealError, RuntimeError):
    """An engine cannot read weights that are in the memory of another device or machine."""


class EngineActor:
    """Serves the `Engine` interface to other processes, at first with the weights of the model folder."""

    def __init__(self, spec: EngineSpec) -> None:
        self._spec = spec
        self.engine: Engine | None = None
        self._changing = asyncio.Lock()

    async def versions(self) -> Mapping[str, int]:
        """Policy → version that the engine holds after pending updates; starts the engine first."""
        return (await self._settled()).report().versions

    async def generate(self, request: GenRequest, *, version: int) -> GenResult:
        """As `Engine.generate`, with this version of the policy's weights."""
        engine = await self._holding(request.policy, version)
        async with self._exit_if_dead():
            return await engine.generate(request)

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str, version: int) -> tuple[float, ...]:
        """As `Engine.score`, with this version of the policy's weights."""
        engine = await self._holding(policy, version)
        async with self._exit_if_dead():
            return await engine.score(token_ids, start, policy=policy)

    async def update(self, payloads: Sequence[Awaitable[Payload]]) -> Mapping[str, int]:
        """Delivers weights, with the engine's proof, and returns the versions held. Requests wait in the meantime.

        Takes references to payloads: for payloads as arguments Ray would delay the call, and many later requests would
        overtake it. Raises `OutOfReach` for weights on another machine, or on a GPU that this one cannot read.
        """
        async with self._changing:
            given = [await payload for payload in payloads]
            for payload in given:
                if isinstance(payload.weights, StoredWeights) and not payload.weights.is_here():
                    raise OutOfReach(f"version {payload.version} of {payload.policy!r} is stored on another machine.")
            engine = await self._ready()
            async with self._exit_if_dead():
                for payload in given:
                    if payload.bucket is not None:
                        await self._update_bucket(engine, payload.bucket, payload.version)
                    if payload.weights is not None:
                        await engine.update_weights(payload.weights, payload.version)
                    if payload.adapter is not None:
                        await engine.update_adapter(payload.policy, payload.adapter, payload.version)
            return engine.report().versions

    async def _update_bucket(self, engine: Any, bucket: Bucket, version: int) -> None:
        devices = device_names()
        on_machine = {name.partition("/")[0]: handle for name, handle in bucket.handles.items()}
        handles = [bucket.handles.get(name, on_machine.get(name.partition("/")[0])) for name in devices]
        if None in handles or not hasattr(engine, "update_bucket"):
            raise OutOfReach(f"no learner computes on the machine of the {self._spec.agent}'s engine.")
        try:
            await engine.update_bucket(bucket, handles, version)
        except DeliveryError as error:
            if bucket.handles.keys() >= set(devices):
                raise
            raise OutOfReach(f"the {self._spec.agent}'s engine cannot read another GPU: {error}") from error

    async def sleep(self) -> None:
        """As `Engine.sleep`, after pending updates."""
        engine = await self._settled()
        async with self._exit_if_dead():
            await engine.sleep()

    def processes(self) -> list[int]:
        """Process ids of the actor and of its engine's core."""
        return [os.getpid(), *self._core()]

    async def close(self) -> None:
        if self.engine is not None:
            await self.engine.close()

    def _core(self) -> list[int]:
        """Process ids of the engine's core, if it is another process."""
        return list(getattr(self.engine, "processes", list)())

    async def _ready(self) -> Engine:
        """The engine, started if need be. The caller holds `_changing`."""
        if self.engine is None:
            gc.disable()  # collections would take a quarter of the time of imports
            try:
                self.engine = await start(self._spec)
            finally:
                gc.enable()
            if self._core():
                lower_process_priority()  # another process computes
            gc.freeze()  # later collections, which halt all requests, skip these objects
        return self.engine

    async def _settled(self) -> Engine:
        """The engine after pending updates."""
        async with self._changing:
            return await self._ready()

    async def _holding(self, policy: str, version: int) -> Engine:
        """The engine. Raises `EngineDead` if it does not hold that version, as after a restart until the delivery."""
        engine = await self._settled()
        if engine.report().versions.get(policy) != version:
            raise EngineDead(f"the engine does not hold version {version} of {policy!r}")
        return engine

    @asynccontextmanager
    async def _exit_if_dead(self) -> AsyncIterator[None]:
        """Ends the process if the engine dies, since Ray would send more requests to it otherwise."""
        try:
            yield
        except EngineDead:
            with suppress(Exception):
                await asyncio.wait_for(self.close(), timeout=5.0)
            os._exit(1)


def device_names() -> list[str]:
    """The GPUs that Ray gave this process, each with its machine; if there are none, the machine's CPU."""
    import ray

    context = ray.get_runtime_context()
    gpus = context.get_accelerator_ids().get("GPU") or ["cpu"]
    return [f"{context.get_node_id()}/{gpu}" for gpu in gpus]


async def start(spec: EngineSpec) -> Engine:
    """Starts an engine in this process."""
    if spec.factory is not None:
        return await spec.factory(spec)
    from policies.engine.choice import start_engine
    from policies.models import open_model

    apart = ("kind", "model", "dialect", "factory", "agent")
    options: dict[str, Any] = {
        field.name: getattr(spec, field.name) for field in fields(spec) if field.name not in apart
    }
    return await start_engine(spec.kind, open_model(spec.model, dialect=spec.dialect), **options)
