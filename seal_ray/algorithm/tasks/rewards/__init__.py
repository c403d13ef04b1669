"""Rewards of a writer of tasks, by the name in `writer.reward`: what each written task of a window is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from envs.registry import Registry
from envs.specifications import Specification, likeness

NEAR = 0.5
"""Likeness from which on two specifications are neighbours. Those of different categories never are."""


@dataclass(frozen=True, slots=True)
class TaskOutcome:
    """A task, by its specification, and its rollouts on the plain interface in some rounds."""

    specification: Specification
    successes: float
    rollouts: float

    @property
    def success(self) -> float | None:
        """The share that succeeded; None where nothing was played."""
        return self.successes / self.rollouts if self.rollouts else None


@dataclass(frozen=True, slots=True)
class Probe:
    """A held-out task that is never trained on: its success at the window's begin and at its end.

    There is none of a task whose dialogues were all lost at one of them.
    """

    specification: Specification
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class WindowOutcomes:
    """What is known at a window's end.

    `written` are the tasks that were written for it, with their rollouts in it; `earlier` those of the pool from
    before, with what was known of them when it began, and `now` the same tasks with their rollouts in it.
    """

    written: Sequence[TaskOutcome]
    earlier: Sequence[TaskOutcome] = ()
    now: Sequence[TaskOutcome] = ()
    probes: Sequence[Probe] = ()


class WriterReward(Protocol):
    """The value of each written task, larger is better; None for one of which nothing is known, which is not learnt
    from. A specification that is rejected gets `worst`, the least value that there is. With `needs_probe` the held-out
    tasks are played at the begin and the end of each window; else there are none.
    """

    @property
    def worst(self) -> float: ...

    @property
    def needs_probe(self) -> bool: ...

    def __call__(self, window: WindowOutcomes) -> list[float | None]: ...


WRITER_REWARDS: Registry[type[WriterReward]] = Registry(
    "writer.reward",
    "seal_ray.writer_rewards",
    {
        "alpha": "seal_ray.algorithm.tasks.rewards.alpha:AlphaTaskReward",
        "progress": "seal_ray.algorithm.tasks.rewards.progress:LearningProgressReward",
        "probe": "seal_ray.algorithm.tasks.rewards.probe:ProbeReward",
    },
)
"""The writer's rewards. A class takes its `Settings` from the writer section and `writer.reward_settings`."""


def success_near(specification: Specification, outcomes: Sequence[TaskOutcome], *, near: float = NEAR) -> float | None:
    """Success on the neighbours of a specification, each rollout weighed by likeness; None where there is none.

    An equal specification is a neighbour too.
    """
    successes = rollouts = 0.0
    for each in outcomes:
        weight = likeness(specification, each.specification)
        if weight >= near:
            successes += weight * each.successes
            rollouts += weight * each.rollouts
    return successes / rollouts if rollouts else None
