"""The parts of the sources that a run is trained on and evaluated on."""

from __future__ import annotations

from envs.sources import Part, Selection, get_source
from envs.task import Task
from seal_ray.config.sections import Environment, Evaluation


def training_part(environment: Environment) -> Part:
    """The tasks to train on. Raises `UserError` for names that are not known."""
    source = get_source(environment.source)
    difficulty = environment.difficulty if source.takes_difficulty else None
    return source.select(Selection(environment.split, tuple(environment.categories), environment.division, difficulty))


def evaluation_part(environment: Environment, evaluation: Evaluation) -> Part:
    """The tasks to evaluate on, of all categories. Raises `UserError` for names that are not known.

    Of the source that is trained on they are a part of the same division: another division's part may hold training
    tasks.
    """
    name = evaluation.source or environment.source
    source = get_source(name)
    return source.select(
        Selection(
            evaluation.split,
            division=environment.division if name == environment.source else None,
            difficulty=environment.difficulty if source.takes_difficulty else None,
        )
    )


def evaluation_tasks(environment: Environment, evaluation: Evaluation) -> tuple[Task, ...]:
    """The first `evaluation.tasks` of the evaluation's part, the categories in turn."""
    return evaluation_part(environment, evaluation).tasks(evaluation.tasks)
