"""The engines of a run: `EnginePool` owns their actors and delivers weights; `RemoteEngine` is the client of one."""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError

from envs.errors import SealError
from policies.engine import BASE, EngineDead, GenRequest, GenResult
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
    """A policy's weights in buckets, if they are sent so, and lazily in ways that reach ever more engines.

    A way gives a payload, or a reference to one.
    """

    buckets: Callable[[], Iterable[Payload]] | None
    ways: Sequence[Callable[[], Any]]
    has_buckets: bool = True
    """Whether the buckets can be sent."""
    references: dict[int, Any] = field(default_factory=dict)

    def reference(self, misses: int) -> Any:
        """None for an engine that buckets reach, as far as is known."""
        way = min(misses - (self.buckets is not None), len(self.ways) - 1)
        if not self.has_buckets:
            way = max(way, 0)
        if way >= 0 and way not in self.references:
            payload = self.ways[way]()
            self.references[way] = payload if isinstance(payload, ray.ObjectRef) else ray.put(payload)
        return self.references.get(way)


@dataclass(slots=True)
class _Member:
    """An engine actor, with the pending call, if any, that returns the versions that it holds."""

    actor: Any
    pending: Any = None
    lacking_seconds: float | None = None
    """Seconds for which it has lacked the current weights, counted during checks; None if it has them."""
    misses: int = 0
    """Number of ways in which weights did not reach it."""


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

    def deliver(
        self,
        policy: str,
        version: int,
        *ways: Callable[[], Any],
        buckets: Callable[[], Iterable[Payload]] | None = None,
        once: bool = False,
    ) -> None:
        """Sends every engine a policy's weights, after earlier deliveries have arrived.

        Engines load and prove them in the background, while requests wait; `heal` and `settle` raise failures. An
        engine to which a way is `OutOfReach` gets the next one's payload. `buckets` come before all ways, and block. If
        they can be sent only `once`, engines that restart get a way's payload.
        """
        self.settle()
        self._payloads[policy] = sent = _Sent(buckets, ways)
        self._held[policy] = version
        self._update(self._members, policy)
        sent.has_buckets = not once

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
        self._wait([member.actor.sleep.remote() for member in self._members])

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
            member.misses += 1
            if all(member.misses >= len(sent.ways) + (sent.buckets is not None) for sent in self._payloads.values()):
                raise
            self._update([member])
            return
        if all(held.get(name) == version for name, version in self._held.items()):
            member.lacking_seconds = None
            return
        self.restarts += 1
        self._update([member])

    def close(self) -> None:
        refs = [member.actor.close.remote() for member in self._members]
        ray.wait(refs, num_returns=len(refs), timeout=10.0)
        for member in self._members:
            ray.kill(member.actor)

    def _update(self, members: Sequence[_Member], *policies: str) -> None:
        """Sends engines the weights of these policies, or of all."""
        sent = [self._payloads[policy] for policy in policies or self._payloads]
        for member in members:
            member.lacking_seconds = member.lacking_seconds or 0.0
        for each in sent:
            members = self._send_buckets(members, each)
        for member in members:
            references = [each.reference(member.misses) for each in sent]
            # A pending check would return the earlier versions.
            member.pending = member.actor.update.remote([reference for reference in references if reference])

    def _send_buckets(self, members: Sequence[_Member], sent: _Sent) -> list[_Member]:
        """Sends engines one bucket after another. Returns engines that did not fail; the next check raises failures."""
        reached = [member for member in members if not sent.reference(member.misses)]
        others = [member for member in members if sent.reference(member.misses)]
        if not reached or sent.buckets is None:
            return others
        # Engines start before learners hold a buffer, since they check how much memory is free.
        self._wait([member.actor.versions.remote() for member in reached])
        for payload in sent.buckets():
            reference = ray.put(payload)
            for member in reached:
                member.pending = member.actor.update.remote([reference])
            self._wait([member.pending for member in reached])
            reached = [member for member in reached if _succeeded(member.pending)]
            if not reached:
                break
        return others + reached

    def _wait(self, calls: Sequence[Any]) -> None:
        ray.wait(list(calls), num_returns=len(calls), timeout=self.timeout)


def _succeeded(ref: Any) -> bool:
    try:
        ray.get(ref, timeout=0)
    except RayError:
        return False
    return True


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
    """One policy of an engine actor as a `Sampler`, with one version of its weights, which the pool delivers.

    Requests to an engine without that version fail as with a dead one, and `restart` waits for the version.
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
