"""Sends groups to runners from a queue of chunks. The chunk of a runner that died is sent to another one."""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Any, Self, TypeVar

from ray.exceptions import RayActorError

from envs.errors import SealError
from policies.rollouts import Fault
from seal_ray.rllib import answers, cause_of, replace_runner, send
from seal_ray.rollout.runner import StuckDialogue, Target
from seal_ray.rollout.types import Group, GroupPlan, Member

_PULSE = 0.2
"""Seconds between two checks of runners and engines."""
MAX_DEATHS = 3
"""Deaths of runners until the groups of a chunk are played one by one, and until a single group is lost."""

R = TypeVar("R")
_log = logging.getLogger("seal_ray")


class RunnersLost(SealError, RuntimeError):
    """No runner came back in time."""


class TooManyFaults(SealError, RuntimeError):
    """More rollouts were lost to faults than `fault_tolerance.max_fault_share` allows."""


def check_faults(groups: Sequence[Group], *, max_share: float) -> None:
    """Logs rollouts that were lost to faults. Raises `TooManyFaults` if their share is above `max_share`."""
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
class Chunk:
    """Groups that are sent to a runner together, and the number of runners that died with them."""

    plans: Sequence[GroupPlan]
    deaths: int = 0

    def after_death(self) -> list[Self]:
        """The chunks to play after another runner died with this one; none for a single group that is given up."""
        if self.deaths + 1 < MAX_DEATHS:
            return [replace(self, deaths=self.deaths + 1)]
        return [replace(self, plans=[plan], deaths=0) for plan in self.plans] if len(self.plans) > 1 else []


def play(
    group: Any, plans: Sequence[GroupPlan], target: Target, *, heal: Callable[[], None], timeout: float
) -> list[Group]:
    """Plays the groups on all runners of an EnvRunnerGroup. Returns them by number.

    Every dialogue carries its seed, so that any runner plays it in the same way. A dialogue that hangs is lost: its
    runner is replaced, and the others are played again. `heal` is called while waiting. Raises `RunnersLost` if no
    runner is alive for `timeout` seconds, and any exception of a runner.
    """
    if not group.num_remote_env_runners():
        played = _play_here(group.local_env_runner, plans, target, heal)
    else:
        played = _play_remotely(group, plans, target, heal, timeout)
    return sorted(played, key=lambda group: group.plan.number)


def _play_here(runner: Any, plans: Sequence[GroupPlan], target: Target, heal: Callable[[], None]) -> list[Group]:
    lost: list[Fault] = []
    while True:
        result = while_healing(lambda: runner.sample(plans=plans, target=target, lost=lost), heal)
        if not isinstance(result, StuckDialogue):
            return list(result)
        _log.warning("a dialogue of %s hangs in this process, and uses a core until the run ends", result.fault.task)
        lost.append(result.fault)


def _play_remotely(
    group: Any, plans: Sequence[GroupPlan], target: Target, heal: Callable[[], None], timeout: float
) -> list[Group]:
    queue = deque(Chunk(part) for part in _parts(plans, group.num_remote_env_runners()))
    under_way: dict[int, Chunk] = {}
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
                why = "each env runner that plays it dies"
                faults = (Fault(plan.task, seed, "RunnerDied", why) for seed in plan.seeds)
                played.append(Group(plan, tuple(map(Member, plan.arms, faults))))
        if healthy:
            alive_at = time.monotonic()
        elif time.monotonic() - alive_at > timeout:
            raise RunnersLost(f"no env runner came back within {timeout:g} s.")
        group.probe_unhealthy_env_runners()
    return played


def while_healing(work: Callable[[], R], heal: Callable[[], None]) -> R:
    """Runs `work` in a thread, and calls `heal` repeatedly until it returns."""
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(work)
        while not wait([future], timeout=_PULSE).done:
            heal()
        return future.result()


def _parts(plans: Sequence[GroupPlan], runners: int) -> list[Sequence[GroupPlan]]:
    size = math.ceil(len(plans) / runners)
    return [plans[start : start + size] for start in range(0, len(plans), size)]
