"""The plan of a round: shares of arms, pairs, common tasks, and dynamic sampling in waves."""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Protocol

from envs.dialogue import Protocol as Rules
from envs.task import JSON, Task
from policies.trajectory import derive_seed
from seal_ray.config.resolve import ArmSpec, RunSpec
from seal_ray.rollout.tasks import TaskStream
from seal_ray.rollout.types import PLAIN, PLAIN_ARM, Arm, Group, GroupPlan

FADE_FROM = 0.5
"""Share of the run after which `curator.plain_share` moves to its end."""


class ArmAllocator(Protocol):
    """Decides how many groups each arm plays, and which arm plays a task that chooses its arm."""

    @property
    def tasks_choose(self) -> bool:
        """Whether half of the tasks choose their arms."""

    def allocate(self, slots: int, seed: int) -> Sequence[int] | None:
        """Groups of each arm that is not plain, `slots` in all; None for equal numbers."""

    def arms_for(self, categories: Sequence[str], seed: int) -> Sequence[Arm]:
        """The arm for each task of these categories."""


class WrittenTasks(Protocol):
    """Written tasks, which replace a part of the drawn tasks."""

    def replace_drawn(self, numbers: range, drawn: Sequence[str]) -> list[str]: ...

    def tasks(self) -> Iterator[Task]: ...


class Planner:
    """Counts a run's groups and draws their tasks, deterministic given its state.

    Groups and tasks have separate counts: if arms share tasks, a round has fewer tasks than groups.
    """

    def __init__(self, spec: RunSpec) -> None:
        self._spec = spec
        self.tasks = TaskStream(spec.environment, spec.seed)
        self._next_group = 0
        self._next_task = 0
        self._arms: Counter[str] = Counter()
        """Arm → groups of it in this window."""
        self._categories: Counter[str] = Counter()
        """Category → tasks of it that arms played in this window."""
        self._seen: set[str] = set()
        self.written: WrittenTasks | None = None

    def upcoming(self) -> Iterator[Task]:
        """The tasks that a window from now on can play, without broken ones."""
        ahead = self._spec.training.max_groups * self._spec.curator.update_every
        yield from self.tasks.tasks(range(self._next_task, self._next_task + ahead))
        if self.written is not None:
            yield from self.written.tasks()

    def shown_rollouts(self, round_number: int) -> int:
        """Rollouts under arms that are not plain, in the window that begins with this round."""
        training, arms = self._spec.training, self._spec.arms
        numbers = range(round_number, min(round_number + self._spec.curator.update_every, training.rounds))
        plain = sum(plain_groups(self._plain_share(number), training.groups, shown=True) for number in numbers)
        groups = len(numbers) * training.groups - plain
        return groups * (training.group_size - plain_members(training.group_size, pairs=arms.pairs))

    def plan(self, arms: Sequence[Arm], round_number: int, allocator: ArmAllocator) -> list[GroupPlan]:
        """The first wave of a round. `arms` are the window's, the plain one first."""
        training = self._spec.training
        numbers, share = self._numbers(training.groups), self._plain_share(round_number)
        if self._spec.arms.on_common_tasks:
            if round_number % self._spec.curator.update_every == 0:
                self._arms, self._categories = Counter(), Counter()
            planned = self._common_tasks(arms, numbers, share, allocator)
        else:
            planned = self._own_tasks(arms, numbers, share)
        return [
            GroupPlan(
                number=number,
                task=task,
                category=self.tasks.category(task),
                arm=arm,
                protocol=Rules(self._spec.environment.protocol),
                seeds=self._seeds(number, training.group_size),
                temperature=self._spec.solver.temperature,
                plain_members=plain_members(training.group_size, pairs=self._spec.arms.pairs and not arm.plain),
            )
            for number, (task, arm) in zip(numbers, planned, strict=True)
        ]

    def replace(self, plans: Sequence[GroupPlan]) -> list[GroupPlan]:
        """New groups instead of these: other tasks and seeds, and the same arms, whose shares so stay as planned."""
        numbers = self._numbers(len(plans))
        return [
            replace(
                plan,
                number=number,
                task=task,
                category=self.tasks.category(task),
                seeds=self._seeds(number, len(plan.seeds)),
            )
            for number, plan, task in zip(numbers, plans, self._draw(len(numbers)), strict=True)
        ]

    def observe(self, groups: Sequence[Group]) -> None:
        """Counts the tasks of a round."""
        self._seen.update(_digest(group.plan.task) for group in groups if group.played)

    @property
    def tasks_seen(self) -> int:
        """Number of different tasks that groups have played since the run began."""
        return len(self._seen)

    def get_state(self) -> dict[str, JSON]:
        """JSON values for a checkpoint."""
        return {
            "next_group": self._next_group,
            "next_task": self._next_task,
            "tally": {"arms": dict(self._arms), "categories": dict(self._categories)},
            "seen": sorted(self._seen),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`."""
        self._next_group, self._next_task = state["next_group"], state["next_task"]
        self._arms, self._categories = Counter(state["tally"]["arms"]), Counter(state["tally"]["categories"])
        self._seen = set(state["seen"])

    def _numbers(self, count: int) -> range:
        numbers = range(self._next_group, self._next_group + count)
        self._next_group = numbers.stop
        return numbers

    def _draw(self, count: int) -> list[str]:
        numbers = range(self._next_task, self._next_task + count)
        self._next_task = numbers.stop
        drawn = [self.tasks.task_id(number) for number in numbers]
        return drawn if self.written is None else self.written.replace_drawn(numbers, drawn)

    def _seeds(self, number: int, members: int) -> tuple[int, ...]:
        return tuple(derive_seed(self._spec.seed, "rollout", number, member) for member in range(members))

    def _plain_share(self, round_number: int) -> float:
        return plain_share_at(round_number, self._spec.training.rounds, self._spec.arms)

    def _order(self, numbers: range) -> random.Random:
        return random.Random(f"arms {self._spec.seed} {numbers.start}")

    def _own_tasks(self, arms: Sequence[Arm], numbers: range, share: float) -> list[tuple[str, Arm]]:
        """A task for each group, with the arms that are not plain in turn."""
        tasks = self._draw(len(numbers))
        plain_arm, *shown = arms
        plain = plain_groups(share, len(tasks), shown=bool(shown))
        drawn = [plain_arm] * plain + [shown[place % len(shown)] for place in range(len(tasks) - plain)]
        self._order(numbers).shuffle(drawn)
        return list(zip(tasks, drawn, strict=True))

    def _common_tasks(
        self, arms: Sequence[Arm], numbers: range, share: float, allocator: ArmAllocator
    ) -> list[tuple[str, Arm]]:
        """Groups of each arm on the same tasks, and groups whose tasks choose their arms."""
        shown = [arm for arm in arms if not arm.plain]
        plain = plain_groups(share, len(numbers), shown=bool(shown))
        counts: Sequence[int] = ()
        choosing: list[tuple[str, Arm]] = []
        if shown:
            slots, seed = len(numbers) - plain, derive_seed(self._spec.seed, "arms", numbers.start)
            if allocator.tasks_choose:
                tasks = self._draw(slots // 2)
                chosen = allocator.arms_for([self.tasks.category(task) for task in tasks], seed)
                choosing = list(zip(tasks, chosen, strict=True))
            counts = allocator.allocate(slots, seed) or equal_counts(
                slots - len(choosing), [arm.id for arm in shown], self._arms
            )
        tasks = self._draw(max([plain, *counts]))
        categories = [self.tasks.category(task) for task in tasks]
        order = alternating(categories, self._categories)
        self._categories.update(categories[place] for place in order[: max(counts, default=0)])
        self._arms.update({PLAIN: plain, **{arm.id: n for arm, n in zip(shown, counts, strict=True)}})
        by_arm = zip([PLAIN_ARM, *shown], [plain, *counts], strict=True)
        planned = [(tasks[place], arm) for arm, n in by_arm for place in order[:n]] + choosing
        self._order(numbers).shuffle(planned)
        return planned


def plain_groups(share: float, groups: int, *, shown: bool) -> int:
    """Number of a round's plain groups, at least one; all if no other arm is `shown`."""
    return max(1, round(share * groups)) if shown else groups


def plain_members(group_size: int, *, pairs: bool) -> int:
    """Number of members of a group under an arm that play the plain interface: half in pairs, else none."""
    return group_size // 2 if pairs else 0


def plain_share_at(round_number: int, rounds: int, arms: ArmSpec) -> float:
    """The share of plain groups in a round, counted from 0: constant, then linear to its end.

    It is constant without an end, and if the change would begin with the last round or later.
    """
    share, end = arms.plain_share, arms.plain_share_end
    first = FADE_FROM * rounds
    left = rounds - 1 - first
    if end is None or left <= 0:
        return share
    return share + (end - share) * min(1.0, max(0.0, (round_number - first) / left))


def equal_counts(slots: int, arms: Sequence[str], so_far: Mapping[str, int]) -> list[int]:
    """Groups of each arm, `slots` in all: as equal as possible, over the window too."""
    equal, left = divmod(slots, len(arms))
    first = sorted(range(len(arms)), key=lambda place: (so_far.get(arms[place], 0), place))[:left]
    return [equal + (place in first) for place in range(len(arms))]


def alternating(categories: Sequence[str], so_far: Mapping[str, int]) -> list[int]:
    """The places of tasks with these categories, ordered so that the least counted category comes next."""
    counts = Counter(so_far)
    left = list(range(len(categories)))
    order: list[int] = []
    while left:
        order.append(min(left, key=lambda place: (counts[categories[place]], place)))
        counts[categories[order[-1]]] += 1
        left.remove(order[-1])
    return order


def _digest(task_id: str) -> str:
    """A short digest of a task's id, since ids of written tasks contain their specification."""
    return blake2b(task_id.encode(), digest_size=8).hexdigest()


Play = Callable[[Sequence[GroupPlan]], list[Group]]
"""Plays groups. Returns them in their order."""


def play_waves(
    plans: Sequence[GroupPlan],
    *,
    play: Play,
    is_equal: Callable[[Group], bool],
    replace: Callable[[Sequence[GroupPlan]], list[GroupPlan]],
    max_groups: int,
) -> list[list[Group]]:
    """Plays `plans`, and as the next wave a replacement of each group that `is_equal`, up to `max_groups` in all.

    DAPO's dynamic sampling (arXiv 2503.14476, section 3.2) in waves that are played to their ends, so that timing
    changes nothing. If `max_groups` leaves too little room, groups with the lowest numbers are replaced. Groups that
    faults made too short are not replaced: a broken environment must not make rounds long.
    """
    waves = [play(plans)]
    while room := max_groups - sum(map(len, waves)):
        equal = [group.plan for group in waves[-1] if is_equal(group)]
        if not equal:
            break
        waves.append(play(replace(equal[:room])))
    return waves
