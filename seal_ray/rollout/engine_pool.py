"""The engines of a run: `EnginePool` owns their actors and delivers weights; `RemoteEngine` is the client of one."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import RayActorError, RayTaskError

from envs.errors import SealError
from policies.engine import BASE, Adapter, EngineDead, EngineReport, GenRequest, GenResult
from seal_ray.config.schema import EngineSection
from seal_ray.rllib import actor_state, cause_of
from seal_ray.rollout.engine_actor import EngineActor, EngineSpec, OutOfReach, Payload

_PAUSE = 0.25
"""Seconds between two checks of an engine that restarts."""
_MAX_STEP = 1.0
"""Largest number of seconds that count between two checks: a learner's update can lie between them."""
MAX_RESTARTS = 10
"""Largest number of restarts of an engine."""
_DEAD = f"an engine died more than {MAX_RESTARTS} times."
_LATE = "an engine was not ready within {:g} s (fault_tolerance.engine_timeout)."
_CALLS = 4096
"""Concurrent calls of an engine actor: the engine does its own batching."""


class EngineLost(SealError, RuntimeError):
    """An engine died more than `MAX_RESTARTS` times, or was not ready in time."""


@dataclass(slots=True)
class _Sent:
    """References to a policy's payload for engines on the learner's machine, and lazily for other machines."""

    here: Any
    make: Callable[[], Payload] | None
    there: Any = None

    def reference(self, *, elsewhere: bool) -> Any:
        if not elsewhere or self.make is None:
            return self.here
        if self.there is None:
            self.there = ray.put(self.make())
        return self.there


@dataclass(slots=True)
class _Member:
    """An engine actor, with the pending call, if any, that returns the versions that it holds."""

    actor: Any
    pending: Any = None
    lacking_seconds: float | None = None
    """Seconds for which it has lacked the current weights, counted during checks; None if it has them."""
    elsewhere: bool = False
    """Whether it runs on another machine than the learner that stores the weights."""


class EnginePool:
    """An engine actor in each of `bundles` (-1 is anywhere), and the current weights, delivered to each engine.

    The engines start with the first `heal` or delivery. `restarts` counts engines that lost their weights. `timeout` is
    the largest number of seconds that an engine may lack them.
    """

    def __init__(self, spec: EngineSpec, bundles: Sequence[int], engine: EngineSection, *, timeout: float) -> None:
        actor: Any = ray.remote(EngineActor)
        options = {"num_cpus": engine.num_cpus_per_engine, "num_gpus": engine.num_gpus_per_engine}
        options |= {"max_restarts": MAX_RESTARTS, "max_task_retries": 0, "max_concurrency": _CALLS}
        self._members = [
            _Member(actor.options(**options, placement_group_bundle_index=bundle).remote(spec)) for bundle in bundles
        ]
        self.timeout = timeout
        self._payloads: dict[str, _Sent] = {}
        self._held: dict[str, int] = {}
        self._checked_at = 0.0
        self.restarts = 0

    @property
    def actors(self) -> list[Any]:
        return [member.actor for member in self._members]

    def deliver(self, payload: Payload, *, elsewhere: Callable[[], Payload] | None = None) -> None:
        """Sends every engine a policy's weights, after earlier deliveries have arrived.

        Engines load and prove them in the background, while requests wait; `heal` and `settle` raise failures.
        `elsewhere` makes the payload for engines to which the weights are `OutOfReach`.
        """
        self.settle()
        self._payloads[payload.policy] = _Sent(ray.put(payload), elsewhere)
        self._held[payload.policy] = payload.version
        for member in self._members:
            # A pending check would return the earlier versions.
            member.pending, member.lacking_seconds = self._update(member, payload.policy), 0.0

    def settle(self) -> None:
        """Blocks until the engines have started and have proven all deliveries. Raises as `heal`."""
        while behind := [member for member in self._members if member.lacking_seconds is not None]:
            pending = [member.pending for member in behind if member.pending is not None]
            if pending:
                ray.wait(pending, timeout=_PAUSE)
            else:
                time.sleep(_PAUSE)
            self.heal()

    def sleep(self) -> None:
        """Has all engines release their GPUs' memory until their next request or delivery. Blocks until they have."""
        calls = [member.actor.sleep.remote() for member in self._members]
        ray.wait(calls, num_returns=len(calls), timeout=self.timeout)

    def heal(self) -> None:
        """Checks all engines without blocking: starts new ones, and sends the weights to ones that restarted.

        Raises `EngineLost`, or any exception of an update (such as `DeliveryError`) or of an engine's start. All
        engines are then killed, so that pending requests end too.
        """
        now = time.monotonic()
        passed, self._checked_at = min(now - self._checked_at, _MAX_STEP), now
        try:
            for member in self._members:
                self._check(member)
                if member.lacking_seconds is not None:
                    member.lacking_seconds += passed
                    if member.lacking_seconds > self.timeout:
                        raise EngineLost(_LATE.format(self.timeout))
        except Exception:
            for member in self._members:
                ray.kill(member.actor)
            raise

    def _check(self, member: _Member) -> None:
        if member.pending is None:
            member.pending = member.actor.versions.remote()
        if not ray.wait([member.pending], timeout=0)[0]:
            return
        reference, member.pending = member.pending, None
        try:
            held = _answer(reference)
        except RayActorError:
            if actor_state(member.actor) == "DEAD":
                raise EngineLost(_DEAD) from None
            member.lacking_seconds = member.lacking_seconds or 0.0
            return
        except OutOfReach:
            if member.elsewhere:
                raise
            member.elsewhere = True
            member.pending = self._update(member)
            return
        if all(held.get(name) == version for name, version in self._held.items()):
            member.lacking_seconds = None
            return
        self.restarts += 1
        member.lacking_seconds = member.lacking_seconds or 0.0
        member.pending = self._update(member)

    def close(self) -> None:
        refs = [member.actor.close.remote() for member in self._members]
        ray.wait(refs, num_returns=len(refs), timeout=10.0)
        for member in self._members:
            ray.kill(member.actor)

    def _update(self, member: _Member, *policies: str) -> Any:
        """Sends an engine the weights of these policies, or of all."""
        sent = [self._payloads[policy] for policy in policies or self._payloads]
        return member.actor.update.remote([each.reference(elsewhere=member.elsewhere) for each in sent])


def _answer(ref: Any) -> Any:
    """The result of an actor's call. Raises its exception."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise cause_of(error) from None


async def _awaited(ref: Any) -> Any:
    """The same of an engine's actor. Raises `EngineDead` if it has died."""
    try:
        return await ref
    except RayActorError as error:
        raise EngineDead("the engine's actor is gone") from error
    except RayTaskError as error:
        raise cause_of(error) from None


class RemoteEngine:
    """One policy of an engine actor as an `Engine`, with one version of its weights.

    Requests to an engine without that version fail as with a dead one, and `restart` waits for the version. The update
    methods raise, since the pool delivers weights.
    """

    def __init__(self, actor: Any, *, policy: str, version: int, timeout: float) -> None:
        self._actor = actor
        self._policy, self._version = policy, version
        self._timeout = timeout

    async def generate(self, request: GenRequest) -> GenResult:
        assert request.policy == self._policy
        result: GenResult = await _awaited(self._actor.generate.remote(request, version=self._version))
        return result

    async def score(self, token_ids: tuple[int, ...], start: int, *, policy: str = BASE) -> tuple[float, ...]:
        assert policy == self._policy
        ref = self._actor.score.remote(token_ids, start, policy=policy, version=self._version)
        logprobs: tuple[float, ...] = await _awaited(ref)
        return logprobs

    async def update_weights(self, weights: Mapping[str, Any], version: int) -> None:
        raise NotImplementedError("the pool delivers weights")

    async def update_adapter(self, policy: str, adapter: Adapter, version: int) -> None:
        raise NotImplementedError("the pool delivers adapters")

    async def sleep(self) -> None:
        raise NotImplementedError("the pool has its engines sleep")

    async def restart(self) -> None:
        deadline = time.monotonic() + self._timeout
        while time.monotonic() < deadline:
            try:
                held = await self._actor.versions.remote()
                if held.get(self._policy) == self._version:
                    return
            except RayActorError:
                if actor_state(self._actor) == "DEAD":
                    raise EngineLost(_DEAD) from None
            await asyncio.sleep(_PAUSE)
        raise EngineLost(f"an engine was not back within {self._timeout:g} s (fault_tolerance.engine_timeout).")

    def report(self) -> EngineReport:
        raise NotImplementedError("the pool has the versions of an engine")

    async def close(self) -> None:
        """Does nothing: the pool closes the actor."""
