"""`HeldOut`: tasks that nobody trains on, played to tell what a window has done (`writer.reward: probe`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from envs.dialogue import Protocol
from envs.errors import UserError
from envs.specifications import Apart, Rejected, Specification, Writable
from policies.trajectory import derive_seed
from seal_ray.algorithm.sampling.groups import PLAIN_ARM, GroupPlan, PlayedGroup
from seal_ray.config import sections
from seal_ray.config.agents import Settings

ROLLOUTS = 4
"""Rollouts of a task at each end of a window."""

_DRAWS = 1_000
"""Draws for each probe, of which one must become a task."""

Play = Callable[[Sequence[GroupPlan]], Sequence[PlayedGroup]]


class HeldOut:
    """Tasks of `writer.probes` random specifications, drawn by the run's seed. `play` plays groups as the solver is.

    Raises `UserError` where too few of a source's specifications become tasks.
    """

    def __init__(self, config: Settings, source: Writable, *, apart: Apart, play: Play) -> None:
        environment, settings = config.section(sections.Environment), config.section(sections.Writer)
        self._protocol = Protocol(environment.protocol)
        self._temperature = config.section(sections.Solver).temperature
        self._seed = int(config.seed)
        self._play = play
        self.specifications: list[Specification] = []
        self._tasks: list[str] = []
        number = 0
        while len(self._tasks) < settings.probes:
            if number >= _DRAWS * settings.probes:
                raise UserError(
                    f"writer.probes: of {number} specifications at random {len(self._tasks)} became tasks that may be "
                    "played; give fewer, or a greater writer.depth."
                )
            specification = source.draw(random.Random(f"probe {self._seed} {number}"))
            number += 1
            if settings.depth is not None and specification.depth > settings.depth:
                continue
            task = source.compose(specification, number, part=environment.split, apart=apart)
            if not isinstance(task, Rejected):
                self.specifications.append(specification)
                self._tasks.append(task.id)

    def success(self, round_number: int) -> list[float | None]:
        """Success on each of them now, on the plain interface; None where all its dialogues were lost."""
        plans = [
            GroupPlan(
                number=place,
                task=task,
                arm=PLAIN_ARM,
                protocol=self._protocol,
                seeds=tuple(derive_seed(self._seed, "probe", round_number, place, each) for each in range(ROLLOUTS)),
                temperature=self._temperature,
            )
            for place, task in enumerate(self._tasks)
        ]
        played = {group.plan.number: group.trajectories for group in self._play(plans)}
        rates = [[each.reward for each in played.get(place, [])] for place in range(len(plans))]
        return [sum(each) / len(each) if each else None for each in rates]
