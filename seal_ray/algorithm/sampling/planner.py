"""`Planner`: the groups of a run by their numbers, each with a task, an arm and seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Protocol

from envs.dialogue import Protocol as Rules
from envs.task import JSON, Task
from policies.trajectory import derive_seed
from seal_ray.algorithm.sampling.common import ArmAllocator, WindowTally, category_in, common_tasks, take_turns
from seal_ray.algorithm.sampling.groups import (
    Arm,
    GroupPlan,
    PlayedGroup,
    TaskStream,
    plain_groups,
    plain_members,
    plain_share_at,
    plan_round,
    replacements,
)
from seal_ray.algorithm.sampling.sampler import make_sampler
from seal_ray.config import sections
from seal_ray.config.agents import Settings


class WrittenTasks(Protocol):
    """Tasks that take the places of some that are drawn, and those that can."""

    def take_places(self, numbers: range, drawn: Sequence[str]) -> list[str]: ...

    def tasks(self) -> Iterator[Task]: ...


class Planner:
    """Counts a run's groups and draws their tasks. A run that goes on with its state plans what it would have planned.

    Groups and tasks are counted apart: where arms have tasks in common, a round has fewer tasks than groups.

    `tasks` is the stream that tasks are drawn from.
    """

    def __init__(self, config: Settings) -> None:
        self._environment = config.section(sections.Environment)
        self._training = config.section(sections.Training)
        self._curator = config.section(sections.Curator)
        self._temperature = config.section(sections.Solver).temperature
        self._seed = int(config.seed)
        self.tasks = TaskStream(self._environment, self._seed)
        self._sampler = make_sampler(self._environment, self.tasks, self._seed)
        self._next_group = 0
        self._next_task = 0
        self._tally = WindowTally()
        self._seen: set[str] = set()
        self.written: WrittenTasks | None = None
        """The tasks that somebody writes, where there are such."""

    def upcoming(self) -> Iterator[Task]:
        """The tasks that a window which begins now can play, without any that is broken."""
        ahead = self._training.most_groups * self._curator.update_every
        yield from self._sampler.upcoming(range(self._next_task, self._next_task + ahead))
        if self.written is not None:
            yield from self.written.tasks()

    def shown_rollouts(self, round_number: int) -> int:
        """The rollouts under arms that are not plain, in the window that begins with this round."""
        numbers = range(round_number, min(round_number + self._curator.update_every, self._training.rounds))
        size = self._training.group_size
        plain = sum(plain_groups(self._plain_share(number), self._training.groups, shown=True) for number in numbers)
        return (len(numbers) * self._training.groups - plain) * (size - plain_members(size, pairs=self._curator.pairs))

    def plan(self, arms: Sequence[Arm], round_number: int, sharing: ArmAllocator | None = None) -> list[GroupPlan]:
        """The groups that a round begins with. `sharing` says which of them each arm plays, beside the plain one."""
        numbers, share = self._numbers(self._training.groups), self._plain_share(round_number)
        assigned: list[Arm] | None = None
        if self._curator.tasks == "common":
            tasks, assigned = self._common_tasks(arms, round_number, numbers, share, sharing)
        else:
            tasks = self._draw(len(numbers))
        return plan_round(
            tasks,
            arms,
            assigned=assigned,
            first_number=numbers.start,
            plain_share=share,
            group_size=self._training.group_size,
            protocol=Rules(self._environment.protocol),
            temperature=self._temperature,
            seed=self._seed,
            pairs=self._curator.pairs,
        )

    def replace(self, plans: Sequence[GroupPlan]) -> list[GroupPlan]:
        """New groups in the place of these, with the same arms."""
        numbers = self._numbers(len(plans))
        return replacements(plans, self._draw(len(numbers)), first_number=numbers.start, seed=self._seed)

    def observe(self, groups: Sequence[PlayedGroup]) -> None:
        """Takes note of the groups of a round."""
        self._sampler.observe(groups)
        self._seen.update(_short(group.plan.task) for group in groups if group.trajectories)

    @property
    def tasks_seen(self) -> int:
        """The different tasks that groups have played since the run began."""
        return len(self._seen)

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        return {
            "next_group": self._next_group,
            "next_task": self._next_task,
            "tally": self._tally.to_dict(),
            "sampler": self._sampler.get_state(),
            "seen": sorted(self._seen),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`. Checkpoints of earlier versions know no sampler, and no tasks beside groups.

        They do not know which tasks were seen either: those count from here on.
        """
        self._next_group = state["next_group"]
        self._next_task = state.get("next_task", self._next_group)
        self._tally = WindowTally.from_dict(state.get("tally", {}))
        self._sampler.set_state(state.get("sampler", {}))
        self._seen = set(state.get("seen", ()))

    def _numbers(self, count: int) -> range:
        numbers = range(self._next_group, self._next_group + count)
        self._next_group = numbers.stop
        return numbers

    def _draw(self, count: int) -> list[str]:
        first, self._next_task = self._next_task, self._next_task + count
        numbers = range(first, self._next_task)
        drawn = self._sampler.draw(numbers)
        return drawn if self.written is None else self.written.take_places(numbers, drawn)

    def _plain_share(self, round_number: int) -> float:
        return plain_share_at(round_number, self._training.rounds, self._curator)

    def _common_tasks(
        self, arms: Sequence[Arm], round_number: int, numbers: range, share: float, sharing: ArmAllocator | None
    ) -> tuple[list[str], list[Arm]]:
        if round_number % self._curator.update_every == 0:
            self._tally = WindowTally()
        shown = [arm.number for arm in arms[1:]]
        plain = plain_groups(share, len(numbers), shown=bool(shown))
        category = category_in(self.tasks)
        counts: Sequence[int] = ()
        chosen: list[tuple[str, Arm]] = []
        if shown:
            slots, seed = len(numbers) - plain, derive_seed(self._seed, "arms", numbers.start)
            chosen = self._choosing_tasks(arms, slots, seed, category, sharing)
            asked = sharing.share_out(slots, seed) if sharing else None
            counts = asked or take_turns(slots - len(chosen), shown, self._tally.arms)
        tasks, assigned = common_tasks(arms, [plain, *counts], draw=self._draw, category=category, tally=self._tally)
        return [*tasks, *(task for task, _ in chosen)], [*assigned, *(arm for _, arm in chosen)]

    def _choosing_tasks(
        self, arms: Sequence[Arm], slots: int, seed: int, category: Callable[[str], str], sharing: ArmAllocator | None
    ) -> list[tuple[str, Arm]]:
        """Tasks that choose their arms, for half of `slots`; the other half tells arms apart. None where none does."""
        if sharing is None or not sharing.tasks_choose:
            return []
        tasks = self._draw(slots // 2)
        numbers = sharing.arms_for([category(task) for task in tasks], seed) or ()
        by_number = {arm.number: arm for arm in arms}
        return [(task, by_number[number]) for task, number in zip(tasks, numbers, strict=True)]


def _short(task_id: str) -> str:
    """A task's id in 16 characters: those of written tasks hold their specification."""
    return blake2b(task_id.encode(), digest_size=8).hexdigest()
