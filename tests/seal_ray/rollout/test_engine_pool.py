"""Deliveries run in the background, requests wait for them, and failures are raised."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import ray

from policies.engine import BASE, DeliveryError, Engine, EngineDead, GenRequest, GenResult
from policies.engine.buckets import Bucket
from seal_ray.config.schema import EngineSection
from seal_ray.rollout.engine_actor import EngineSpec, Payload, device_names
from seal_ray.rollout.engine_pool import EngineLost, EnginePool, RemoteEngine
from tests.policies.scripted_engine import ScriptedEngine
from tests.seal_ray.algorithm.configs import ROUNDS_IN_RAY

pytestmark = [*ROUNDS_IN_RAY, pytest.mark.long]

REFUSED, ENDLESS = 7, 8
"""Versions that the engine does not take, and that it takes for ever."""
PROVEN, UNPROVEN = 1, 2
"""Checksums of buckets that the engine takes, and that it refuses."""
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

    async def update_bucket(self, bucket: Bucket, handles: Sequence[Sequence[Any]], version: int) -> None:
        if bucket.checksum == UNPROVEN:
            raise DeliveryError(f"{handles[0][0]} is not the one that was sent")
        if bucket.is_last:
            await super().update_weights({}, version)


async def _slow(_: EngineSpec) -> Engine:
    return _Slow()


@contextmanager
def started(engines: int) -> Iterator[EnginePool]:
    """A pool of slow engines that hold version 1."""
    spec = EngineSpec("", "", None, context=64, dtype="float32", concurrent=1, factory=_slow)
    pool = EnginePool(spec, [-1] * engines, EngineSection(num_cpus_per_engine=0.1), timeout=600.0)
    try:
        _deliver(pool, 1)
        pool.settle()
        yield pool
    finally:
        pool.close()


def _deliver(pool: EnginePool, number: int) -> None:
    pool.deliver(BASE, number, lambda: Payload(BASE, number, weights={}))


def _deliver_in_buckets(
    pool: EnginePool, number: int, *checksums: int, device: str = "", once: bool = False
) -> list[int]:
    """Buckets for engines on this device's machine, or on this one, and a file for others.

    Returns the numbers of buckets that were made.
    """
    made = []

    def buckets() -> Iterator[Payload]:
        for place, checksum in enumerate(checksums):
            made.append(place)
            handles = {device or device_names()[0]: (f"buffer {place}",)}
            bucket = Bucket({}, "float32", checksum, handles, is_last=place == len(checksums) - 1)
            yield Payload(BASE, number, bucket=bucket)

    pool.deliver(BASE, number, lambda: Payload(BASE, number, weights={}), buckets=buckets, once=once)
    return made


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
        _deliver(pool, 2)
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
            _deliver(pool, number)
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
        _deliver(pool, REFUSED)
        refused = pytest.raises(DeliveryError, match="it computes with other weights")
        with _waiting(pool, REFUSED), refused:
            _deliver(pool, 9)


def test_buckets_reach_engines_on_the_learners_machine_and_others_get_a_file() -> None:
    with started(2) as pool:
        began = time.monotonic()
        assert _deliver_in_buckets(pool, 2, PROVEN, PROVEN) == [0, 1]
        pool.settle()
        assert time.monotonic() - began < SECONDS, "no file was sent"
        _restart_first(pool)
        assert pool.restarts == 1
        beside = f"{device_names()[0]}-2"
        began = time.monotonic()
        assert _deliver_in_buckets(pool, 3, PROVEN, PROVEN, device=beside) == [0, 1]
        pool.settle()
        assert time.monotonic() - began < SECONDS, "no file was sent"
        assert _deliver_in_buckets(pool, 4, PROVEN, UNPROVEN, device=beside) == [0, 1]
        pool.settle()
        assert ray.get([actor.versions.remote() for actor in pool.actors]) == [{BASE: 4}] * 2
        assert _deliver_in_buckets(pool, 5, PROVEN, PROVEN) == [], "they have not reached it before"
        pool.settle()
        assert pool.restarts == 1


def _restart_first(pool: EnginePool) -> None:
    """Kills the first engine, and waits until it holds its weights again."""
    before = pool.restarts
    (pid,) = ray.get(pool.actors[0].processes.remote())
    os.kill(pid, signal.SIGKILL)
    until_restarted = time.monotonic() + 60.0
    while pool.restarts == before and time.monotonic() < until_restarted:
        pool.heal()
    pool.settle()


def test_an_engine_that_restarts_gets_a_file_if_buckets_can_be_sent_once() -> None:
    with started(1) as pool:
        for number in (2, 3):
            made = _deliver_in_buckets(pool, number, PROVEN, PROVEN, once=True)
            assert made == [0, 1]
        _restart_first(pool)
        assert made == [0, 1]
        assert ray.get(pool.actors[0].versions.remote()) == {BASE: 3}


def test_buckets_do_not_reach_engines_on_other_machines() -> None:
    with started(1) as pool:
        assert _deliver_in_buckets(pool, 2, PROVEN, PROVEN, device="elsewhere/1") == [0]
        pool.settle()
        assert ray.get(pool.actors[0].versions.remote()) == {BASE: 2}


def test_an_engine_that_refuses_a_bucket_gets_no_more_and_the_failure_is_raised() -> None:
    with started(1) as pool:
        assert _deliver_in_buckets(pool, 2, PROVEN, UNPROVEN, PROVEN) == [0, 1]
        with pytest.raises(DeliveryError, match="buffer 1 is not the one that was sent"):
            pool.settle()


def test_an_engine_that_never_takes_its_weights_is_given_up() -> None:
    with started(1) as pool:
        pool.timeout = 1.0  # a start may take longer
        _deliver(pool, ENDLESS)
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
