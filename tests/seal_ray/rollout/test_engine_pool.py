"""Deliveries run in the background, requests wait for them, and failures are raised."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import ray

from policies.engine import BASE, DeliveryError, Engine, EngineDead, GenRequest, GenResult
from seal_ray.config.schema import EngineSection
from seal_ray.rollout.engine_actor import EngineSpec, Payload
from seal_ray.rollout.engine_pool import EngineLost, EnginePool, RemoteEngine
from tests.policies.scripted_engine import ScriptedEngine
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]

REFUSED, ENDLESS = 7, 8
"""Versions that the engine does not take, and that it takes for ever."""
SECONDS = 1.0
"""The duration of an update."""


class _Slow(ScriptedEngine):
    def __init__(self) -> None:
        super().__init__(lambda _: (1,))

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        await asyncio.sleep(3600.0 if version == ENDLESS else SECONDS)
        if version == REFUSED:
            raise DeliveryError("it computes with other weights")
        await super().update_weights(weights, version)


async def _slow(_: EngineSpec) -> Engine:
    return _Slow()


@contextmanager
def started(engines: int) -> Iterator[EnginePool]:
    """A pool of slow engines that hold version 1."""
    spec = EngineSpec("", "", None, context=64, dtype="float32", concurrent=1, factory=_slow)
    pool = EnginePool(spec, [-1] * engines, EngineSection(num_cpus_per_engine=0.1), timeout=600.0)
    try:
        pool.deliver(_version(1))
        pool.settle()
        yield pool
    finally:
        pool.close()


def _version(number: int) -> Payload:
    return Payload(BASE, number, weights={})


def _ask(actor: Any, version: int) -> GenResult:
    """The result of a request as dialogues send it: again after a restart, since it may overtake a delivery."""

    async def generate() -> GenResult:
        engine = RemoteEngine(actor, policy=BASE, version=version, timeout=10.0)
        try:
            return await engine.generate(GenRequest((1,), max_tokens=1))
        except EngineDead:
            await engine.restart()
            return await engine.generate(GenRequest((1,), max_tokens=1))

    return asyncio.run(generate())


def test_a_delivery_runs_in_the_background_and_requests_and_the_next_one_wait() -> None:
    with started(2) as pool:
        began = time.monotonic()
        pool.deliver(_version(2))
        pool.heal()
        assert time.monotonic() - began < SECONDS
        for actor in pool.actors:
            assert _ask(actor, version=2).versions_T == (2,)
        assert time.monotonic() - began >= SECONDS
        pool.settle()
        earlier = RemoteEngine(pool.actors[0], policy=BASE, version=1, timeout=10.0)
        with pytest.raises(EngineDead, match="does not hold version 1"):
            asyncio.run(earlier.generate(GenRequest((1,), max_tokens=1)))
        began = time.monotonic()
        for number in (3, 4):
            pool.deliver(_version(number))
        assert time.monotonic() - began >= SECONDS
        pool.settle()
        assert ray.get([actor.versions.remote() for actor in pool.actors]) == [{BASE: 4}] * 2
        assert pool.restarts == 0


@contextmanager
def _waiting(pool: EnginePool, version: int) -> Iterator[None]:
    """A dialogue asks for this version in vain, as env runners do; it ends within seconds after the block."""

    async def play() -> None:
        engine = RemoteEngine(pool.actors[0], policy=BASE, version=version, timeout=600.0)
        try:
            await engine.generate(GenRequest((1,), max_tokens=1))
        except EngineDead:
            await engine.restart()

    threads = ThreadPoolExecutor(1)
    playing = threads.submit(asyncio.run, play())
    yield
    threads.shutdown(wait=False)
    assert isinstance(playing.exception(timeout=30.0), EngineLost)


def test_the_next_delivery_raises_if_an_engine_did_not_take_its_weights() -> None:
    with started(1) as pool:
        pool.deliver(_version(REFUSED))
        refused = pytest.raises(DeliveryError, match="it computes with other weights")
        with _waiting(pool, REFUSED), refused:
            pool.deliver(_version(9))


def test_an_engine_that_never_takes_its_weights_is_given_up() -> None:
    with started(1) as pool:
        pool.timeout = 1.0  # a start may take longer
        pool.deliver(_version(ENDLESS))
        lost = pytest.raises(EngineLost, match=r"not ready within 1 s \(fault_tolerance.engine_timeout\)")
        with _waiting(pool, ENDLESS), lost:
            pool.settle()


def test_time_between_two_checks_does_not_count() -> None:
    with started(1) as pool:
        pool.timeout = 2.0
        (actor,) = pool.actors
        (pid,) = ray.get(actor.processes.remote())
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            pool.heal()  # it sees the death
        time.sleep(3.0)  # as a learner may learn
        pool.heal()
        pool.timeout = 60.0
        pool.settle()
        assert ray.get(actor.versions.remote()) == {BASE: 1}
        assert pool.restarts == 1
