"""What came of each task of an evaluation, by suite and category."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from envs.diagnosis import Diagnosis, Label, TurnDiagnosis
from envs.task import Task, sorted_categories
from envs.verifier import Outcome, TurnVerdict
from policies.trajectory import Trajectory
from seal_ray.config.schema import EnvironmentSection, EvaluationSection
from seal_ray.evaluation.suites import PLAIN, PlainSuite, Suites
from seal_ray.metrics import Metric


class Played:
    """What counting needs of a dialogue."""

    def __init__(self, task: str, reward: float, category: str = "base", *labels: Label) -> None:
        self.task, self.reward, self.category = task, reward, category
        turns = tuple(TurnDiagnosis(n, each, "", TurnVerdict(n, Outcome.PASS)) for n, each in enumerate(labels))
        self.diagnosis = Diagnosis(task, category, turns, bool(reward))


class FirstSuite(PlainSuite):
    """The first of the plain suite's tasks, which is played once for both."""

    name = "first"

    def tasks(self, environment: EnvironmentSection, evaluation: EvaluationSection) -> Sequence[Task]:
        return super().tasks(environment, evaluation)[:1]


def test_every_task_has_its_outcome_and_a_lost_one_none() -> None:
    suites = Suites([PlainSuite(), FirstSuite()], EnvironmentSection(), EvaluationSection(tasks=8))
    first, lost, *others = suites.tasks
    played = [Played(first.id, 1.0), *(Played(task.id, 0.0) for task in others)]
    outcomes = suites.outcomes(cast(list[Trajectory], played))
    assert outcomes["first"] == {first.category: {first.id: 1}}
    found = outcomes[PLAIN]
    assert list(found) == sorted_categories(task.category for task in suites.tasks)
    assert {name: category for category, tasks in found.items() for name in tasks} == {
        task.id: task.category for task in suites.tasks
    }
    assert {name: each for tasks in found.values() for name, each in tasks.items()} == {
        first.id: 1,
        lost.id: None,
        **{task.id: 0 for task in others},
    }


class BackwardSuite(PlainSuite):
    """The plain suite's tasks from the last to the first."""

    name = "backward"
    metrics = (Metric("first_won", "share", "Whether the first of its dialogues was won."),)

    def tasks(self, environment: EnvironmentSection, evaluation: EvaluationSection) -> Sequence[Task]:
        return super().tasks(environment, evaluation)[::-1]

    def count(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        return {"first_won": trajectories[0].reward}


def test_a_suite_counts_its_dialogues_in_its_own_order() -> None:
    suites = Suites([PlainSuite(), BackwardSuite()], EnvironmentSection(), EvaluationSection(tasks=4))
    *others, last = suites.tasks
    played = [*(Played(task.id, 0.0, task.category) for task in others), Played(last.id, 1.0, last.category)]
    assert suites.count(cast(list[Trajectory], played))["backward/first_won"] == 1.0


def test_turns_are_counted_over_all_dialogues() -> None:
    suites = Suites([PlainSuite()], EnvironmentSection(), EvaluationSection(tasks=2))
    first, second = suites.tasks
    played = [
        Played(first.id, 0.0, first.category, Label.PASS, Label.CORRECT_ABSTENTION, Label.STATE_MISMATCH),
        Played(second.id, 0.0, second.category, Label.NOT_REACHED),
    ]
    assert suites.count(cast(list[Trajectory], played))["turns_done"] == 0.5
