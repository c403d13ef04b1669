"""A round's groups: their arms, which task each plays under which arm with which seeds, and each as it was played.

What is measured of them has the names of `seal_ray/report/metrics.py`.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache

from envs.diagnosis import Label
from envs.dialogue import Protocol
from envs.errors import EnvironmentFault, SealError, UserError
from envs.interface import Interface
from envs.mixture import MixedPool
from envs.sources import TaskPool, get_source
from envs.task import Task
from policies.plain_view import NoView, PlainView
from policies.rollouts import Fault
from policies.trajectory import Trajectory, derive_seed
from seal_ray.config.sections import Curator, Environment
from seal_ray.grpo.arms import PLAIN
from seal_ray.grpo.rewards import Reward
from seal_ray.grpo.schedule import faded
from seal_ray.report.metrics import mean


@dataclass(frozen=True, slots=True)
class Arm:
    """An interface that groups of a window are played under, by its number in the window. Number 0 is the plain one."""

    number: int
    interface: Interface

    @property
    def plain(self) -> bool:
        return self.number == PLAIN


PLAIN_ARM = Arm(PLAIN, Interface.plain())


def number_arms(interfaces: Iterable[Interface]) -> tuple[Arm, ...]:
    """The arms of a window: the plain interface first, then these in their order, each once."""
    return tuple(Arm(*pair) for pair in enumerate(dict.fromkeys([Interface.plain(), *interfaces])))


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group: a task, an arm, and a seed for each of its members.

    `number` counts a run's groups from 0. The first `plain_members` play the plain interface, the others the arm: where
    there are some of both the group is a pair.
    """

    number: int
    task: str
    arm: Arm
    protocol: Protocol
    seeds: tuple[int, ...]
    temperature: float
    plain_members: int = 0

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The arm of each member."""
        return (PLAIN_ARM,) * self.plain_members + (self.arm,) * (len(self.seeds) - self.plain_members)

    @property
    def plain(self) -> bool:
        """Whether all members play the plain interface."""
        return self.arm.plain or self.plain_members == len(self.seeds)

    @property
    def parts(self) -> tuple[GroupPlan, ...]:
        """The plain members of a pair, then the others; of another group all of them."""
        plain = self.plain_members
        if not 0 < plain < len(self.seeds):
            return (self,)
        return replace(self, seeds=self.seeds[:plain]), replace(self, seeds=self.seeds[plain:], plain_members=0)


@dataclass(frozen=True, slots=True)
class Member:
    """A dialogue that was played, with its arm, and its plain view or why it has none where that was asked for."""

    arm: Arm
    trajectory: Trajectory
    view: PlainView | NoView | None = None


@dataclass(frozen=True, slots=True)
class PlayedGroup:
    """A group with the outcome of each of its dialogues, in the order of its seeds.

    `views` are those of its members under an interface that is not plain, None for the others; empty where nobody asked
    for them.
    """

    plan: GroupPlan
    outcomes: tuple[Trajectory | Fault, ...]
    views: tuple[PlainView | NoView | None, ...] = ()

    @property
    def members(self) -> list[Member]:
        """The dialogues that were played."""
        views = self.views or (None,) * len(self.outcomes)
        found = zip(self.plan.arms, self.outcomes, views, strict=True)
        return [Member(arm, each, view) for arm, each, view in found if isinstance(each, Trajectory)]

    @property
    def trajectories(self) -> list[Trajectory]:
        """The dialogues that were played."""
        return [each for each in self.outcomes if isinstance(each, Trajectory)]

    @property
    def faults(self) -> list[Fault]:
        """The dialogues that were lost."""
        return [each for each in self.outcomes if isinstance(each, Fault)]

    def by_arm(self) -> dict[int, list[Trajectory]]:
        """Number of an arm → its dialogues that were played, for the arms that have some: a pair's are two."""
        found: dict[int, list[Trajectory]] = {}
        for each in self.members:
            found.setdefault(each.arm.number, []).append(each.trajectory)
        return found


def plan_round(
    tasks: Sequence[str],
    arms: Sequence[Arm],
    *,
    first_number: int,
    plain_share: float,
    group_size: int,
    protocol: Protocol,
    temperature: float,
    seed: int,
    assigned: Sequence[Arm] | None = None,
    pairs: bool = False,
) -> list[GroupPlan]:
    """The groups of one round, one for each of `tasks`. With `pairs` those that are not plain are half plain.

    `plain_share` of them, rounded and at least one, play the first arm, which is the plain one; the others take the
    other arms in turn. A group has one arm beside the plain one at most.
    `assigned` is the arm of each task where that was decided before; the groups come in any order then.
    """
    plain_arm, *shown = arms
    plain = plain_groups(plain_share, len(tasks), shown=bool(shown))
    drawn = [plain_arm] * plain + [shown[place % len(shown)] for place in range(len(tasks) - plain)]
    order = random.Random(f"arms {seed} {first_number}")
    if assigned is None:
        order.shuffle(drawn)
    else:
        together = list(zip(tasks, assigned, strict=True))
        order.shuffle(together)
        tasks, drawn = [task for task, _ in together], [arm for _, arm in together]
    return [
        GroupPlan(
            number=number,
            task=task,
            arm=arm,
            protocol=protocol,
            seeds=_seeds(seed, number, group_size),
            temperature=temperature,
            plain_members=plain_members(group_size, pairs=pairs and not arm.plain),
        )
        for number, task, arm in zip(range(first_number, first_number + len(tasks)), tasks, drawn, strict=True)
    ]


def replacements(plans: Sequence[GroupPlan], tasks: Sequence[str], *, first_number: int, seed: int) -> list[GroupPlan]:
    """New groups in the place of `plans`: other numbers, tasks and seeds, and for each the arm of the one it replaces.

    So the groups that teach have the shares of arms that their round was planned with. Arms whose groups often teach
    nothing are played more than their share.
    """
    return [
        replace(plan, number=number, task=task, seeds=_seeds(seed, number, len(plan.seeds)))
        for number, (plan, task) in enumerate(zip(plans, tasks, strict=True), start=first_number)
    ]


def _seeds(seed: int, number: int, members: int) -> tuple[int, ...]:
    return tuple(derive_seed(seed, "rollout", number, member) for member in range(members))


def plain_groups(share: float, groups: int, *, shown: bool) -> int:
    """How many of a round's groups play the plain arm; all where no other arm is `shown`."""
    return max(1, round(share * groups)) if shown else groups


def plain_members(group_size: int, *, pairs: bool) -> int:
    """How many members of a group under an arm play the plain interface: half in pairs, else none."""
    return group_size // 2 if pairs else 0


def plain_share_at(round_number: int, rounds: int, curator: Curator) -> float:
    """The share of groups on the plain interface in a round, counted from 0: constant, then linear to its end.

    A fade-out shows whether what the interface unlocked stays without it.
    """
    start, end = curator.plain_share, curator.plain_share_end
    return faded(start, end, begin=curator.fade_from, round_number=round_number, rounds=rounds)


def training_pool(environment: Environment) -> TaskPool:
    """The tasks that can be drawn, the categories in the source's order. Raises `UserError` for unknown names."""
    source = get_source(environment.source)
    chosen = source.categories if environment.categories is None else environment.categories
    return source.pool(
        environment.split,
        division=environment.division,
        difficulty=environment.difficulty if source.takes_difficulty else None,
        categories=[category for category in source.categories if category in chosen],
    )


class TaskStream:
    """Tasks without end. A run that goes on at number n draws what an undisturbed run draws there.

    A finite set of tasks is gone through in epochs, each in an order of its own; a source without end gives other seeds
    other tasks, but for `environment.tasks` of it, which are the same for all seeds. Raises `UserError` where no task
    is left.
    """

    def __init__(self, environment: Environment, seed: int) -> None:
        self._source = get_source(environment.source)
        self._seed = seed
        self._pool = training_pool(environment)
        sizes = [size for size in (self._pool.size, environment.tasks) if size is not None]
        self._size = min(sizes, default=None)
        if isinstance(self._pool, MixedPool) and environment.tasks is not None:
            _check_different(environment.tasks, self._pool)
        if self._size == 0:
            division = "" if environment.division is None else f" of {environment.division!r}"
            raise UserError(f"environment.split: {environment.split!r}{division} has no tasks of these categories.")

    def task_id(self, number: int) -> str:
        """The id of the task with that number, from 0."""
        if self._size is None:
            return self._pool.task_id(number, self._seed)
        epoch, place = divmod(number, self._size)
        return self._pool.task_id(self._order(epoch)[place])

    def task(self, task_id: str) -> Task:
        """The task of that id. Raises `EnvironmentFault` or `UserError` where it is broken."""
        return self._source.task(task_id)

    def tasks(self, numbers: Iterable[int]) -> Iterator[Task]:
        """The tasks with these numbers, without any that is broken."""
        for number in numbers:
            with suppress(EnvironmentFault, UserError):
                yield self.task(self.task_id(number))

    def comes_again(self, task_id: str) -> bool:
        """Whether a training task is one of a finite set, and not a generated one that comes once."""
        if self._size is None and isinstance(self._pool, MixedPool):
            return any(pool.size is not None and pool.holds(task_id) for pool in self._pool.pools)
        return self._size is not None

    @property
    def finite_set(self) -> list[Task]:
        """All training tasks where their number is limited, else none."""
        return list(self.tasks(range(self._size or 0)))

    @lru_cache(maxsize=2)  # noqa: B019 - a run has one stream, which lives as long as it
    def _order(self, epoch: int) -> tuple[int, ...]:
        assert self._size is not None
        order = list(range(self._size))
        random.Random(f"tasks {self._seed} {epoch}").shuffle(order)
        return tuple(order)


def _check_different(count: int, pool: MixedPool) -> None:
    """Raises `UserError` where a finite source of a mixture has too few tasks for its share of so many."""
    different = len({pool.task_id(number) for number in range(count)})
    if different < count:
        raise UserError(
            f"environment.tasks: of {count} tasks in the mixture's shares {different} are different; take fewer, or "
            "give a finite source a smaller share."
        )


_log = logging.getLogger("seal_ray")


class TooManyFaults(SealError, RuntimeError):
    """More dialogues of a round were lost to faults than `fault_tolerance.max_fault_share` allows."""


def check_faults(groups: Sequence[PlayedGroup], *, most: float) -> None:
    """Logs the dialogues that were lost. Raises `TooManyFaults` where they are a larger share than `most`."""
    faults = [fault for group in groups for fault in group.faults]
    played = sum(len(group.outcomes) for group in groups)
    if len(faults) > most * played:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(f.kind for f in faults).most_common())
        raise TooManyFaults(
            f"rollouts: {len(faults)} of {played} dialogues were lost to faults ({kinds}); "
            f"the first: {faults[0].message}"
        )
    for fault in faults:
        _log.warning("a dialogue of %s was lost: %s: %s", fault.task, fault.kind, fault.message)


def of_rollouts(groups: Sequence[PlayedGroup], reward: Reward, categories: Sequence[str]) -> dict[str, float]:
    """Mean reward, success by category and kind of arm, the labels' shares of all turns, and the number of faults."""
    trajectories = _trajectories(groups)
    members = [each for group in groups for each in group.members]
    labels = Counter(label for each in trajectories for label in each.diagnosis.labels)
    turns = max(1, labels.total())
    return {
        "solver/success": _success(trajectories),
        "solver/success_plain": _success([each.trajectory for each in members if each.arm.plain]),
        "solver/success_shown": _success([each.trajectory for each in members if not each.arm.plain]),
        "solver/reward": mean(map(reward, trajectories)),
        "solver/rollouts": len(trajectories),
        "solver/groups": len(groups),
        "solver/groups_shown": sum(not group.plan.plain for group in groups),
        "solver/tokens_sampled": sampled_tokens(groups),
        "interface/plain_share": sum(group.plan.plain for group in groups) / len(groups),
        **_of_views([each.view for each in members if each.view is not None]),
        **{
            f"solver/success/{category}": _success([each for each in trajectories if each.category == category])
            for category in categories
        },
        **{f"diagnosis/share/{label}": labels[label] / turns for label in Label},
        "diagnosis/faults": sum(len(group.faults) for group in groups),
    }


def _of_views(views: Sequence[PlainView | NoView]) -> dict[str, float]:
    if not views:
        return {}
    reasons = Counter(view for view in views if isinstance(view, NoView))
    return {
        "solver/views": len(views) - reasons.total(),
        **{f"solver/views/{reason}": reasons[reason] for reason in NoView},
    }


def sampled_tokens(groups: Sequence[PlayedGroup]) -> int:
    return sum(each.sampled_tokens for each in _trajectories(groups))


def _trajectories(groups: Iterable[PlayedGroup]) -> list[Trajectory]:
    return [each for group in groups for each in group.trajectories]


def _success(trajectories: Sequence[Trajectory]) -> float:
    return mean(each.reward for each in trajectories)
