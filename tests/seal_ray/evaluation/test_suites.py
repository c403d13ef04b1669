"""What came of each task of an evaluation, by suite and category."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from envs.task import Task, in_order
from policies.trajectory import Trajectory
from seal_ray.config.sections import Environment, Evaluation
from seal_ray.evaluation.suites import PLAIN, PlainSuite, Suites


class Played:
    """What counting needs of a dialogue."""

    def __init__(self, task: str, reward: float) -> None:
        self.task, self.reward = task, reward


class FirstSuite(PlainSuite):
    """The first of the plain suite's tasks, which is played once for both."""

    name = "first"

    def tasks(self, environment: Environment, evaluation: Evaluation) -> Sequence[Task]:
        return super().tasks(environment, evaluation)[:1]


def test_every_task_has_its_outcome_and_a_lost_one_none() -> None:
    suites = Suites([PlainSuite(), FirstSuite()], Environment(), Evaluation(tasks=8))
    first, lost, *others = suites.tasks
    played = [Played(first.id, 1.0), *(Played(task.id, 0.0) for task in others)]
    outcomes = suites.outcomes(cast(list[Trajectory], played))
    assert outcomes["first"] == {first.category: {first.id: 1}}
    found = outcomes[PLAIN]
    assert list(found) == in_order(task.category for task in suites.tasks)
    assert {name: category for category, tasks in found.items() for name in tasks} == {
        task.id: task.category for task in suites.tasks
    }
    assert {name: each for tasks in found.values() for name, each in tasks.items()} == {
        first.id: 1,
        lost.id: None,
        **{task.id: 0 for task in others},
    }
