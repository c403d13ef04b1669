"""The tasks that a run is evaluated on: those of the same division that its training tasks come from."""

from __future__ import annotations

import itertools

from envs.bfcl.splits import get_split
from envs.task import Task
from seal_ray.config.sections import Environment, Evaluation
from seal_ray.evaluation.plan import choose_tasks, in_turn


def evaluation_tasks(environment: Environment, evaluation: Evaluation) -> tuple[Task, ...]:
    """The tasks, the categories in turn. Raises `UserError` for names that are not known.

    Of the benchmark they are a part of `environment.bfcl_split`: another division's part may hold training tasks.
    """
    source = evaluation.source or environment.source
    if source == "toolworld":
        return choose_tasks(source, evaluation.split, limit=evaluation.tasks, difficulty=environment.difficulty)
    division = environment.bfcl_split if environment.source == "bfcl" else "scenario"
    return tuple(itertools.islice(in_turn(get_split(division).part(evaluation.split)), evaluation.tasks))
