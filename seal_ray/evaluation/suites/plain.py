"""The plain suite: success on the tasks of `evaluation.source` and `evaluation.split`, and by category."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from envs.task import Task, in_order
from policies.trajectory import Trajectory
from seal_ray.config.sections import Environment, Evaluation
from seal_ray.evaluation.suites import PLAIN
from seal_ray.evaluation.tasks import evaluation_tasks
from seal_ray.report.metrics import Metric


class PlainSuite:
    """Every run has it: comparisons, sweeps and model cards read its success."""

    name = PLAIN
    metrics: Sequence[Metric] = ()
    """Nothing beside what `seal_ray/report/metrics.py` lists."""

    def tasks(self, environment: Environment, evaluation: Evaluation) -> Sequence[Task]:
        return evaluation_tasks(environment, evaluation)

    def count(self, trajectories: Sequence[Trajectory]) -> dict[str, float]:
        return {
            "dialogues": len(trajectories),
            "success": _mean(each.reward for each in trajectories),
            **{
                f"success/{category}": _mean(each.reward for each in trajectories if each.category == category)
                for category in in_order(each.category for each in trajectories)
            },
        }


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found) if found else float("nan")
