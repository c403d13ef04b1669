"""Evaluation suites of a run, by the names in `evaluation.suites`: their tasks and metrics.

Every suite plays the plain interface under the official protocol of its source.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

from envs.errors import UserError
from envs.registry import Registry
from envs.task import Task, sorted_categories
from policies.trajectory import Trajectory
from seal_ray.config.schema import EnvironmentSection, EvaluationSection
from seal_ray.evaluation.plan import evaluation_tasks
from seal_ray.metrics import Metric, check, mean, register

PLAIN = "plain"
"""The suite whose metrics have no suite name: `evaluation/success` and so on."""

Outcomes = Mapping[str, Mapping[str, Mapping[str, int | None]]]
"""Suite → category → task → the reward of its dialogue, 0 or 1; None if the dialogue was lost."""


class Suite(Protocol):
    """Chooses tasks and counts their dialogues.

    `Metric("success", …)` in `metrics` is reported as `evaluation/NAME/success`. `tasks` returns the same tasks each
    time, which `envs.sources.find_task` finds by their ids, and no training task. `count` gets one dialogue of each
    task in their order, without those that were lost to faults, and returns values of some or all `metrics`.
    """

    name: str

    @property
    def metrics(self) -> Sequence[Metric]: ...

    def tasks(self, environment: EnvironmentSection, evaluation: EvaluationSection) -> Sequence[Task]: ...

    def count(self, trajectories: Sequence[Trajectory]) -> Mapping[str, float]: ...


SUITES: Registry[type[Suite]] = Registry(
    "evaluation.suites", "seal_ray.suites", {PLAIN: "seal_ray.evaluation.suites:PlainSuite"}
)
_SUITE_NAME = re.compile(r"[a-z][a-z0-9_]*")


def make_suites(environment: EnvironmentSection, evaluation: EvaluationSection) -> Suites:
    """The suites that `evaluation.suites` names. Their metrics are known from then on. Raises `UserError`."""
    if PLAIN not in evaluation.suites:
        raise UserError("evaluation.suites: 'plain' must be one of them; comparisons and model cards read its success.")
    made: list[Suite] = []
    for name in dict.fromkeys(evaluation.suites):
        suite = SUITES.make(name, dict(evaluation))
        for attribute in ("name", "metrics", "tasks", "count"):
            if not hasattr(suite, attribute):
                raise UserError(f"evaluation.suites: {name} has no {attribute!r}, which a suite needs.")
        if not isinstance(suite.name, str) or not _SUITE_NAME.fullmatch(suite.name):
            raise UserError(
                f"evaluation.suites: {name}: its name, {suite.name!r:.40}, must be of the letters a to z, digits and _."
            )
        if suite.name in [other.name for other in made]:
            raise UserError(f"evaluation.suites: two of them have the name {suite.name!r:.40}; rename one.")
        made.append(suite)
    return Suites(made, environment, evaluation)


class Suites:
    """The suites of a run. A task of several suites is played once."""

    def __init__(self, suites: Sequence[Suite], environment: EnvironmentSection, evaluation: EvaluationSection) -> None:
        """Registers the suites' metrics. Raises `UserError` if a metric's name is taken."""
        self._suites = suites
        self._environment = environment
        self._evaluation = evaluation
        for suite in suites:
            if suite.name != PLAIN:
                register(Metric(_path(suite, each.name), each.unit, each.meaning) for each in suite.metrics)

    @cached_property
    def _chosen(self) -> list[dict[str, Task]]:
        """Each suite's tasks by their ids."""
        chosen = (suite.tasks(self._environment, self._evaluation) for suite in self._suites)
        return [{task.id: task for task in tasks} for tasks in chosen]

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, without duplicates, in the order of the suites."""
        return tuple({name: task for chosen in self._chosen for name, task in chosen.items()}.values())

    def count(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        """Metric's name below `evaluation/` → value. Raises `ValueError` for one that its suite does not define."""
        played = {each.task: each for each in trajectories}
        metrics: dict[str, float] = {}
        for suite, chosen in zip(self._suites, self._chosen, strict=True):
            counted = suite.count([played[name] for name in chosen if name in played])
            named = {_path(suite, name): value for name, value in counted.items()}
            check(named)
            metrics |= {name.removeprefix("evaluation/"): value for name, value in named.items()}
        return metrics

    def outcomes(self, trajectories: Sequence[Trajectory]) -> Outcomes:
        """The reward of each task of each suite; None if its dialogue was lost to a fault."""
        rewards = {each.task: int(each.reward) for each in trajectories}
        return {
            suite.name: {
                category: {name: rewards.get(name) for name, task in chosen.items() if task.category == category}
                for category in sorted_categories(task.category for task in chosen.values())
            }
            for suite, chosen in zip(self._suites, self._chosen, strict=True)
        }


def _path(suite: Suite, metric: str) -> str:
    return f"evaluation/{metric}" if suite.name == PLAIN else f"evaluation/{suite.name}/{metric}"


class PlainSuite:
    """The suite of every run: comparisons, sweeps and model cards use its success."""

    name = PLAIN
    metrics: Sequence[Metric] = ()
    """Its metrics are listed in `seal_ray/metrics.py`."""

    def tasks(self, environment: EnvironmentSection, evaluation: EvaluationSection) -> Sequence[Task]:
        return evaluation_tasks(environment, evaluation)

    def count(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        return {
            "dialogues": len(trajectories),
            "success": mean(each.reward for each in trajectories),
            **{
                f"success/{category}": mean(each.reward for each in trajectories if each.category == category)
                for category in sorted_categories(each.category for each in trajectories)
            },
            "turns_done": mean(label.is_done for each in trajectories for label in each.diagnosis.labels),
        }
