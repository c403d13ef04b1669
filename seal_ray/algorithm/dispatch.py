"""Sending groups to runners: a queue of chunks, from which what a dead runner had goes to another."""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import ray
from ray.exceptions import RayActorError

from envs.errors import SealError
from policies.rollouts import Fault
from seal_ray.algorithm.engine_pool import cause_of
from seal_ray.algorithm.round_plan import GroupPlan
from seal_ray.algorithm.runner import PlayedGroup, Target
from seal_ray.algorithm.stuck import Stuck

_PULSE = 0.2
"""Seconds between two looks at runners and engines."""
_TAG = "sample"

_DEATHS = 3
"""Runners that may die over a chunk before its groups are played one by one, and over a group before it is lost."""

R = TypeVar("R")
_log = logging.getLogger("seal_ray")


class RunnersLost(SealError, RuntimeError):
    """No runner came back in time."""


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Groups that are sent to a runner together, and the runners that died over them."""

    plans: Sequence[GroupPlan]
    deaths: int = 0

    def after_death(self) -> list[_Chunk]:
        """What is to be played now that another runner has died; nothing where a single group is at fault."""
        if self.deaths + 1 < _DEATHS:
            return [replace(self, deaths=self.deaths + 1)]
        return [_Chunk([plan]) for plan in self.plans] if len(self.plans) > 1 else []


def play(
    group: Any, plans: Sequence[GroupPlan], target: Target, *, heal: Callable[[], None], timeout: float
) -> list[PlayedGroup]:
    """Plays the groups on all runners of an EnvRunnerGroup. Returns them by number.

    Every dialogue carries its seed, so that it comes out the same whichever runner plays it, and however often. One
    that does not come back is lost: its runner is replaced, and what it had is played again without it. `heal` is
    called while waiting. Raises `RunnersLost` where no runner lives for `timeout` seconds, and what a runner raises.
    """
    if not group.num_remote_env_runners():
        played = _play_here(group.local_env_runner, plans, target, heal)
    else:
        played = _play_remotely(group, plans, target, heal, timeout)
    return sorted(played, key=lambda group: group.plan.number)


def _play_here(runner: Any, plans: Sequence[GroupPlan], target: Target, heal: Callable[[], None]) -> list[PlayedGroup]:
    lost: list[Fault] = []
    while True:
        found = while_healing(lambda: runner.sample(plans=plans, target=target, lost=lost), heal)
        if not isinstance(found, Stuck):
            played: list[PlayedGroup] = found
            return played
        _log.warning("a dialogue of %s hangs in this process, and takes its time until the run ends", found.task)
        lost.append(found.fault)


def _play_remotely(
    group: Any, plans: Sequence[GroupPlan], target: Target, heal: Callable[[], None], timeout: float
) -> list[PlayedGroup]:
    queue = deque(_Chunk(part) for part in _parts(plans, group.num_remote_env_runners()))
    under_way: dict[int, _Chunk] = {}
    played: list[PlayedGroup] = []
    lost: list[Fault] = []
    alive_at = time.monotonic()
    while len(played) < len(plans):
        for runner in group.healthy_env_runner_ids():
            if runner not in under_way and queue:
                chunk = queue.popleft()
                sent = group.foreach_env_runner_async(
                    func="sample",
                    kwargs={"plans": chunk.plans, "target": target, "lost": tuple(lost)},
                    tag=_TAG,
                    remote_worker_ids=[runner],
                )
                if sent:
                    under_way[runner] = chunk
                else:
                    queue.append(chunk)
        # By way of the group, what a runner raises would be logged and dropped.
        for result in group._worker_manager.fetch_ready_async_reqs(tags=_TAG, timeout_seconds=_PULSE):
            if not result.ok:
                if not isinstance(result.get(), RayActorError):
                    raise cause_of(result.get())
            elif isinstance(result.get(), Stuck):
                lost.append(result.get().fault)
                queue.append(under_way.pop(result.actor_id))
                _replace(group, result.actor_id)
            else:
                played += result.get()
                under_way.pop(result.actor_id)
        heal()
        healthy = set(group.healthy_env_runner_ids())
        for runner in [runner for runner in under_way if runner not in healthy]:
            chunk = under_way.pop(runner)
            queue.extend(left := chunk.after_death())
            if not left:
                (plan,) = chunk.plans
                faults = (
                    Fault(plan.task, seed, "RunnerDied", "each env runner that plays it dies") for seed in plan.seeds
                )
                played.append(PlayedGroup(plan, tuple(faults)))
        if healthy:
            alive_at = time.monotonic()
        elif time.monotonic() - alive_at > timeout:
            raise RunnersLost(f"no env runner came back within {timeout:g} s.")
        group.probe_unhealthy_env_runners()
    return played


def _replace(group: Any, runner: int) -> None:
    """Ends a runner's process, which will not do so by itself; Ray starts another in its place."""
    manager = group._worker_manager
    ray.kill(manager.actors()[runner], no_restart=False)
    manager.set_actor_state(runner, healthy=False)


def while_healing(work: Callable[[], R], heal: Callable[[], None]) -> R:
    """What `work` returns, which runs in a thread of this process while `heal` is called now and then."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while not wait([future], timeout=_PULSE).done:
            heal()
        return future.result()


def _parts(plans: Sequence[GroupPlan], runners: int) -> list[Sequence[GroupPlan]]:
    size = math.ceil(len(plans) / runners)
    return [plans[start : start + size] for start in range(0, len(plans), size)]
