"""`Planner`: the groups of a run by their numbers, each with a task, an arm and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envs.dialogue import Protocol
from envs.task import JSON, Task
from seal_ray.algorithm.sampling.groups import (
    Arm,
    GroupPlan,
    PlayedGroup,
    TaskStream,
    plain_share_at,
    plan_round,
    replacements,
)
from seal_ray.algorithm.sampling.sampler import make_sampler
from seal_ray.config import sections
from seal_ray.config.agents import Settings


class Planner:
    """Counts a run's groups and draws their tasks. A run that goes on with its state plans what it would have planned.

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

    def upcoming(self) -> Iterator[Task]:
        """The tasks that a window which begins now can play, without any that is broken."""
        ahead = self._training.most_groups * self._curator.update_every
        return self._sampler.upcoming(range(self._next_group, self._next_group + ahead))

    def plan(self, arms: Sequence[Arm], round_number: int) -> list[GroupPlan]:
        """The groups that a round begins with."""
        numbers = self._numbers(self._training.groups)
        return plan_round(
            self._sampler.draw(numbers),
            arms,
            first_number=numbers.start,
            plain_share=plain_share_at(round_number, self._training.rounds, self._curator),
            group_size=self._training.group_size,
            protocol=Protocol(self._environment.protocol),
            temperature=self._temperature,
            seed=self._seed,
            pairs=self._curator.pairs,
        )

    def replace(self, plans: Sequence[GroupPlan]) -> list[GroupPlan]:
        """New groups in the place of these, with the same arms."""
        numbers = self._numbers(len(plans))
        return replacements(plans, self._sampler.draw(numbers), first_number=numbers.start, seed=self._seed)

    def observe(self, groups: Sequence[PlayedGroup]) -> None:
        """Takes note of the groups of a round."""
        self._sampler.observe(groups)

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        return {"next_group": self._next_group, "sampler": self._sampler.get_state()}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`. Checkpoints of earlier versions know no sampler."""
        self._next_group = state["next_group"]
        self._sampler.set_state(state.get("sampler", {}))

    def _numbers(self, count: int) -> range:
        numbers = range(self._next_group, self._next_group + count)
        self._next_group = numbers.stop
        return numbers
