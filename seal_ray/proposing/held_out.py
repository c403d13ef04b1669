"""`HeldOut`: tasks that are never trained on, whose success measures a window (`held_out_success`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from envs.dialogue import Protocol
from envs.errors import UserError
from envs.specifications import Apart, Rejected, Specification, Writable
from policies.trajectory import derive_seed
from seal_ray.config.resolve import RunSpec
from seal_ray.rollout.types import PLAIN_ARM, Group, GroupPlan

TASKS = 16
"""Number of held-out tasks."""
ROLLOUTS = 4
"""Rollouts of a task at each end of a window."""
_DRAWS = 1_000
"""Largest number of draws for each task."""

Play = Callable[[Sequence[GroupPlan]], Sequence[Group]]


class HeldOut:
    """Tasks of random specifications, drawn by the run's seed. `play` plays groups with the present weights.

    Raises `UserError` if too few specifications of a source become tasks.
    """

    def __init__(self, spec: RunSpec, source: Writable, depth: int | None, *, apart: Apart, play: Play) -> None:
        self._protocol = Protocol(spec.environment.protocol)
        self._temperature = spec.solver.temperature
        self._seed = spec.seed
        self._play = play
        self.specifications: list[Specification] = []
        self._tasks: list[str] = []
        number = 0
        while len(self._tasks) < TASKS:
            if number >= _DRAWS * TASKS:
                raise UserError(
                    f"task_writer.depth: of {number} random specifications {len(self._tasks)} became tasks; the reward "
                    f"held_out_success needs {TASKS}."
                )
            specification = source.draw(random.Random(f"probe {self._seed} {number}"))
            number += 1
            if depth is not None and specification.depth > depth:
                continue
            task = source.compose(specification, number, part=spec.environment.split, apart=apart)
            if not isinstance(task, Rejected):
                self.specifications.append(specification)
                self._tasks.append(task.id)

    def success(self, round_number: int) -> list[float | None]:
        """The present success on each task, on the plain interface; None if all its rollouts were lost."""
        plans = [
            GroupPlan(
                number=place,
                task=task,
                category=str(specification.category),
                arm=PLAIN_ARM,
                protocol=self._protocol,
                seeds=tuple(derive_seed(self._seed, "probe", round_number, place, each) for each in range(ROLLOUTS)),
                temperature=self._temperature,
            )
            for place, (task, specification) in enumerate(zip(self._tasks, self.specifications, strict=True))
        ]
        played = {group.plan.number: group.trajectories for group in self._play(plans)}
        rates = [[trajectory.reward for trajectory in played.get(place, [])] for place in range(len(plans))]
        return [sum(rewards) / len(rewards) if rewards else None for rewards in rates]
