"""Sending groups to runners: a queue of chunks, from which what a dead runner had goes to another."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, TypeVar

from ray.exceptions import RayActorError

from envs.errors import SealError
from seal_ray.algorithm.engine_pool import cause_of
from seal_ray.algorithm.round_plan import GroupPlan
from seal_ray.algorithm.runner import PlayedGroup, Target

_PULSE = 0.2
"""Seconds between two looks at runners and engines."""
_TAG = "sample"

R = TypeVar("R")


class RunnersLost(SealError, RuntimeError):
    """No runner came back in time."""


def play(
    group: Any, plans: Sequence[GroupPlan], target: Target, *, heal: Callable[[], None], timeout: float
) -> list[PlayedGroup]:
    """Plays the groups on all runners of an EnvRunnerGroup. Returns them by number.

    Every dialogue carries its seed, so that it comes out the same whichever runner plays it, and however often. `heal`
    is called while waiting. Raises `RunnersLost` where no runner lives for `timeout` seconds, and what a runner raises.
    """
    if not group.num_remote_env_runners():
        played = [while_healing(lambda: group.local_env_runner.sample(plans=plans, target=target), heal)]
    else:
        played = _play_remotely(group, plans, target, heal, timeout)
    return sorted((group for part in played for group in part), key=lambda group: group.plan.number)


def _play_remotely(
    group: Any, plans: Sequence[GroupPlan], target: Target, heal: Callable[[], None], timeout: float
) -> list[list[PlayedGroup]]:
    queue = deque(_chunks(plans, group.num_remote_env_runners()))
    wanted = len(queue)
    under_way: dict[int, Sequence[GroupPlan]] = {}
    played: list[list[PlayedGroup]] = []
    alive_at = time.monotonic()
    while len(played) < wanted:
        for runner in group.healthy_env_runner_ids():
            if runner not in under_way and queue:
                chunk = queue.popleft()
                sent = group.foreach_env_runner_async(
                    func="sample", kwargs={"plans": chunk, "target": target}, tag=_TAG, remote_worker_ids=[runner]
                )
                if sent:
                    under_way[runner] = chunk
                else:
                    queue.append(chunk)
        # By way of the group, what a runner raises would be logged and dropped.
        for result in group._worker_manager.fetch_ready_async_reqs(tags=_TAG, timeout_seconds=_PULSE):
            if result.ok:
                played.append(result.get())
                under_way.pop(result.actor_id)
            elif not isinstance(result.get(), RayActorError):
                raise cause_of(result.get())
        heal()
        healthy = set(group.healthy_env_runner_ids())
        for runner in [runner for runner in under_way if runner not in healthy]:
            queue.append(under_way.pop(runner))
        if healthy:
            alive_at = time.monotonic()
        elif time.monotonic() - alive_at > timeout:
            raise RunnersLost(f"no env runner came back within {timeout:g} s.")
        group.probe_unhealthy_env_runners()
    return played


def while_healing(work: Callable[[], R], heal: Callable[[], None]) -> R:
    """What `work` returns, which runs in a thread of this process while `heal` is called now and then."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while not wait([future], timeout=_PULSE).done:
            heal()
        return future.result()


def _chunks(plans: Sequence[GroupPlan], runners: int) -> list[Sequence[GroupPlan]]:
    size = math.ceil(len(plans) / runners)
    return [plans[start : start + size] for start in range(0, len(plans), size)]
