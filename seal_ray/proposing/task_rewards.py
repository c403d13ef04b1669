"""Values of the written tasks of a window, by `task_writer.reward`."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from envs import dialogue
from envs.errors import UserError
from envs.registry import Registry
from envs.specifications import Apart, Rejected, Specification, Writable, likeness
from policies.trajectory import derive_seed
from seal_ray.config.resolve import RunSpec
from seal_ray.proposing.curator_rewards import alpha_value
from seal_ray.rollout.planner import Play
from seal_ray.rollout.types import PLAIN_ARM, GroupPlan

NEAR = 0.5
"""Likeness from which two specifications are neighbours; specifications of different categories never are."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A task, by its specification, and its rollouts on the plain interface in some rounds."""

    specification: Specification
    successes: float
    rollouts: float

    @property
    def success(self) -> float | None:
        """The success rate; None without rollouts."""
        return self.successes / self.rollouts if self.rollouts else None


@dataclass(frozen=True, slots=True)
class HeldOutOutcome:
    """A held-out task that is never trained on: its success at the window's start and end.

    With `training.staleness` 1 both are before the last update that was learnt until then.
    """

    specification: Specification
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class WindowOutcomes:
    """Outcomes of a window.

    `written` are the window's new tasks with their rollouts in it; `earlier` and `now` the older tasks of the pool with
    their rollouts before the window and in it; `held_out` the held-out tasks, if the reward needs them.
    """

    written: Sequence[TaskOutcome]
    earlier: Sequence[TaskOutcome] = ()
    now: Sequence[TaskOutcome] = ()
    held_out: Sequence[HeldOutOutcome] = ()


class TaskReward(Protocol):
    """The value of each written task, larger is better; None for no value: the task writer does not learn from it.

    A rejected specification gets `worst`. With `needs_held_out` the held-out tasks are played at the start and the end
    of each window.
    """

    @property
    def worst(self) -> float: ...

    @property
    def needs_held_out(self) -> bool: ...

    def __call__(self, window: WindowOutcomes) -> list[float | None]: ...


class AlphaTaskReward:
    """`exp(−β·(p̂ − α)²)`, p̂ the task's success over its rollouts in the window (GenEnv, arXiv 2512.19682)."""

    worst = 0.0
    needs_held_out = False

    def __call__(self, window: WindowOutcomes) -> list[float | None]:
        successes = [outcome.success for outcome in window.written]
        return [None if p is None else alpha_value(p) for p in successes]


class LearningProgressReward:
    """The change of plain success on the neighbours of a task's specification in the window, from -1 to 1.

    Neighbours include the task itself, and each rollout is weighted by likeness. A task without rollouts or earlier
    neighbours has no value. Neighbours are not equally hard, so that a part of the change is chance. ALP-GMM compares a
    task with its nearest one in the same way (arXiv 1910.07224).
    """

    worst = -1.0
    needs_held_out = False

    def __call__(self, window: WindowOutcomes) -> list[float | None]:
        now = [*window.written, *window.now]
        values: list[float | None] = []
        for task in window.written:
            before = success_near(task.specification, window.earlier) if task.rollouts else None
            after = success_near(task.specification, now)
            values.append(None if before is None or after is None else after - before)
        return values


class HeldOutSuccessReward:
    """The gain in plain success on the held-out tasks over the window, from -1 to 1.

    Each held-out task counts by its likeness to the written one, all equally if none is like it.
    """

    worst = -1.0
    needs_held_out = True

    def __call__(self, window: WindowOutcomes) -> list[float | None]:
        changes = [each.after - each.before for each in window.held_out]
        values: list[float | None] = []
        for task in window.written:
            weights = [likeness(task.specification, each.specification) for each in window.held_out]
            if not any(weights):
                weights = [1.0] * len(changes)
            gain = sum(weight * change for weight, change in zip(weights, changes, strict=True))
            values.append(gain / sum(weights) if task.rollouts and changes else None)
        return values


TASK_REWARDS: Registry[type[TaskReward]] = Registry(
    "task_writer.reward",
    "seal_ray.task_rewards",
    {
        "alpha": "seal_ray.proposing.task_rewards:AlphaTaskReward",
        "progress": "seal_ray.proposing.task_rewards:LearningProgressReward",
        "held_out_success": "seal_ray.proposing.task_rewards:HeldOutSuccessReward",
    },
)


def success_near(specification: Specification, outcomes: Sequence[TaskOutcome]) -> float | None:
    """Success on the neighbours of a specification, weighted by likeness; None without rollouts."""
    successes = rollouts = 0.0
    for each in outcomes:
        weight = likeness(specification, each.specification)
        if weight >= NEAR:
            successes += weight * each.successes
            rollouts += weight * each.rollouts
    return successes / rollouts if rollouts else None


TASKS = 16
"""Number of held-out tasks."""
ROLLOUTS = 4
"""Rollouts of a task at each end of a window."""
_DRAWS = 1_000
"""Largest number of draws for each task."""


class PlainRollouts:
    """Plays tasks on the plain interface with the present weights, by `play`. `tokens` counts sampled tokens."""

    def __init__(self, spec: RunSpec, play: Play) -> None:
        self._protocol = dialogue.Protocol(spec.environment.protocol)
        self._temperature = spec.solver.temperature
        self._seed = spec.seed
        self._play = play
        self.tokens = 0

    def rewards(self, tasks: Sequence[tuple[str, str]], rollouts: int, *purpose: object) -> list[list[float]]:
        """The rewards of some rollouts of each task, given by id and category. `purpose` is a part of the seeds."""
        plans = [
            GroupPlan(
                number=place,
                task=task,
                category=category,
                arm=PLAIN_ARM,
                protocol=self._protocol,
                seeds=tuple(derive_seed(self._seed, *purpose, place, member) for member in range(rollouts)),
                temperature=self._temperature,
            )
            for place, (task, category) in enumerate(tasks)
        ]
        played = {group.plan.number: group.trajectories for group in self._play(plans)} if plans else {}
        self.tokens += sum(trajectory.sampled_tokens for each in played.values() for trajectory in each)
        return [[trajectory.reward for trajectory in played.get(place, [])] for place in range(len(plans))]


class HeldOut:
    """Tasks of random specifications, drawn by the run's seed. `plain` plays them with the present weights.

    Raises `UserError` if too few specifications of a source become tasks.
    """

    def __init__(
        self, spec: RunSpec, source: Writable, depth: int | None, *, apart: Apart, plain: PlainRollouts
    ) -> None:
        self._plain = plain
        self.specifications: list[Specification] = []
        self._tasks: list[tuple[str, str]] = []
        number = 0
        while len(self._tasks) < TASKS:
            if number >= _DRAWS * TASKS:
                raise UserError(
                    f"task_writer.depth: of {number} random specifications {len(self._tasks)} became tasks; the reward "
                    f"held_out_success needs {TASKS}."
                )
            specification = source.draw(random.Random(f"probe {spec.seed} {number}"))
            number += 1
            if depth is not None and specification.depth > depth:
                continue
            task = source.compose(specification, number, part=spec.environment.split, apart=apart)
            if not isinstance(task, Rejected):
                self.specifications.append(specification)
                self._tasks.append((task.id, str(specification.category)))

    def success(self, round_number: int) -> list[float | None]:
        """The present success on each task, on the plain interface; None if all its rollouts were lost."""
        played = self._plain.rewards(self._tasks, ROLLOUTS, "probe", round_number)
        return [sum(rewards) / len(rewards) if rewards else None for rewards in played]
