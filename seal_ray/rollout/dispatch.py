"""Sending groups to runners: a queue of chunks. The chunk of a runner that died goes to another one."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ray.exceptions import RayActorError

from envs.errors import SealError
from policies.rollouts import Fault
from seal_ray.rllib import answers, cause_of, replace_runner, send
from seal_ray.rollout.runner import StuckDialogue, Target
from seal_ray.rollout.types import Group, GroupPlan, Member

_PULSE = 0.2
"""Seconds between two looks at runners and engines."""

_DEATHS = 3
"""Runners that may die over a chunk before its groups are played one by one, and over a group before it is lost."""

R = TypeVar("R")
_log = logging.getLogger("seal_ray")


class RunnersLost(SealError, RuntimeError):
    """No runner came back in time."""


class TooManyFaults(SealError, RuntimeError):
    """More rollouts were lost to faults than `fault_tolerance.max_fault_share` allows."""


def check_faults(groups: Sequence[Group], *, max_share: float) -> None:
    """Logs the rollouts that were lost to faults. Raises `TooManyFaults` if they are a larger share."""
    faults = [fault for group in groups for fault in group.faults]
    planned = sum(len(group.members) for group in groups)
    if len(faults) > max_share * planned:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(f.kind for f in faults).most_common())
        raise TooManyFaults(
            f"rollouts: {len(faults)} of {planned} dialogues were lost to faults ({kinds}); "
            f"the first: {faults[0].message}"
        )
    for fault in faults:
        _log.warning("a dialogue of %s was lost: %s: %s", fault.task, fault.kind, fault.message)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Groups that are sent to a runner together, and the runners that died over them."""

    plans: Sequence[GroupPlan]
    deaths: int = 0

    def after_death(self) -> list[_Chunk]:
        """The chunks to play after another runner has died over this one; none where it is a single group."""
        if self.deaths + 1 < _DEATHS:
            return [replace(self, deaths=self.deaths + 1)]
        return [_Chunk([plan]) for plan in self.plans] if len(self.plans) > 1 else []


def play(
    group: Any, plans: Sequence[GroupPlan], target: Target, *, heal: Callable[[], None], timeout: float
) -> list[Group]:
    """Plays the groups on all runners of an EnvRunnerGroup. Returns them by number.

    Every dialogue carries its seed, so that any runner plays it in the same way, however often. A dialogue that hangs
    is lost: its runner is replaced, and its other dialogues are played again. `heal` is called while waiting. Raises
    `RunnersLost` where no runner lives for `timeout` seconds, and what a runner raises.
    """
    if not group.num_remote_env_runners():
        played = _play_here(group.local_env_runner, plans, target, heal)
    else:
        played = _play_remotely(group, plans, target, heal, timeout)
    return sorted(played, key=lambda group: group.plan.number)


def _play_here(runner: Any, plans: Sequence[GroupPlan], target: Target, heal: Callable[[], None]) -> list[Group]:
    lost: list[Fault] = []
    while True:
        found = while_healing(lambda: runner.sample(plans=plans, target=target, lost=lost), heal)
        if not isinstance(found, StuckDialogue):
            played: list[Group] = found
            return played
        _log.warning("a dialogue of %s hangs in this process, and takes its time until the run ends", found.fault.task)
        lost.append(found.fault)


def _play_remotely(
    group: Any, plans: Sequence[GroupPlan], target: Target, heal: Callable[[], None], timeout: float
) -> list[Group]:
    queue = deque(_Chunk(part) for part in _parts(plans, group.num_remote_env_runners()))
    under_way: dict[int, _Chunk] = {}
    played: list[Group] = []
    lost: list[Fault] = []
    alive_at = time.monotonic()
    while len(played) < len(plans):
        for runner in group.healthy_env_runner_ids():
            if runner not in under_way and queue:
                chunk = queue.popleft()
                if send(group, runner, plans=chunk.plans, target=target, lost=tuple(lost)):
                    under_way[runner] = chunk
                else:
                    queue.append(chunk)
        for runner, answer in answers(group, timeout=_PULSE):
            if isinstance(answer, RayActorError):
                continue  # the group marks the runner as not healthy
            if isinstance(answer, Exception):
                raise cause_of(answer)
            if isinstance(answer, StuckDialogue):
                lost.append(answer.fault)
                queue.append(under_way.pop(runner))
                replace_runner(group, runner)
            else:
                played += answer
                under_way.pop(runner)
        heal()
        healthy = set(group.healthy_env_runner_ids())
        for runner in [runner for runner in under_way if runner not in healthy]:
            chunk = under_way.pop(runner)
            queue.extend(left := chunk.after_death())
            if not left:
                (plan,) = chunk.plans
                faults = (
                    Member(arm, Fault(plan.task, seed, "RunnerDied", "each env runner that plays it dies"))
                    for seed, arm in zip(plan.seeds, plan.arms, strict=True)
                )
                played.append(Group(plan, tuple(faults)))
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


def _parts(plans: Sequence[GroupPlan], runners: int) -> list[Sequence[GroupPlan]]:
    size = math.ceil(len(plans) / runners)
    return [plans[start : start + size] for start in range(0, len(plans), size)]
