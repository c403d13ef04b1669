"""The tasks that a run is evaluated on: those of the same division that its training tasks come from."""

from __future__ import annotations

from envs.sources import get_source
from envs.task import Task
from seal_ray.config.sections import Environment, Evaluation
from seal_ray.evaluation.plan import chosen_tasks


def evaluation_tasks(environment: Environment, evaluation: Evaluation) -> tuple[Task, ...]:
    """The tasks, the categories in turn. Raises `UserError` for names that are not known.

    Of the source that is trained on they are a part of `environment.division`: another division's part may hold
    training tasks.
    """
    source = get_source(evaluation.source or environment.source)
    return chosen_tasks(
        source,
        evaluation.split,
        division=environment.division if source is get_source(environment.source) else None,
        difficulty=environment.difficulty if source.takes_difficulty else None,
        limit=evaluation.tasks,
    )
