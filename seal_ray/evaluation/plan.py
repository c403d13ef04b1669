"""The plan of an evaluation, checked completely before anything starts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from envs.dialogue import Dialogue, Protocol
from envs.errors import UserError, check_known
from envs.sources import TaskSource, get_source
from envs.task import Task
from policies.models import ModelFolder
from policies.prompting import ChatFormat
from policies.rollouts import RolloutJob
from policies.solver import Budgets
from policies.trajectory import derive_seed
from seal_ray.config.schema import EnvironmentSection, EvaluationSection

ENDLESS_TASKS = 400
"""Default number of tasks of an endless source, as many as the benchmark's test split has."""
MAX_CONTEXT = 32_768
"""Default context in tokens, for models that have more."""


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """An evaluation, always on the plain interface and under the source's own `protocol`."""

    model: ModelFolder
    environment: str
    split: str
    tasks: tuple[Task, ...]
    budgets: Budgets
    engine: str
    dtype: str
    split_scheme: str | None = None
    seeds: int = 1
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    concurrent: int = 64
    threads: int | None = None
    gpu_memory_share: float = 0.9
    protocol: Protocol = Protocol.OFFICIAL

    def jobs(self) -> list[RolloutJob]:
        return [
            RolloutJob(task, derive_seed(self.seed, task.id, member), protocol=self.protocol)
            for member in range(self.seeds)
            for task in self.tasks
        ]

    def settings(self) -> dict[str, Any]:
        """All that the outcome depends on, as JSON values. An evaluation is resumed only with the same ones."""
        return {
            "model": str(self.model.path.resolve()),
            "model_files": self.model.fingerprint(),
            "dialect": self.model.dialect.name,
            "environment": self.environment,
            "split": self.split,
            **({} if self.split_scheme is None else {"division": self.split_scheme}),
            "tasks": [task.id for task in self.tasks],
            "interface": "plain",
            "protocol": str(self.protocol),
            "budgets": asdict(self.budgets),
            "engine": self.engine,
            "dtype": self.dtype,
            "seeds": self.seeds,
            "seed": self.seed,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }


def check_plan(plan: EvaluationPlan) -> ChatFormat:
    """The model's chat format. Raises `UserError` if the plan is not possible."""
    if not plan.tasks:
        raise UserError("evaluation: no task is left to play; give a larger --limit or more categories.")
    if plan.seeds > 1 and plan.temperature == 0:
        raise UserError(f"--seeds: {plan.seeds} seeds give the same greedy dialogue; add --temperature 1.0.")
    if plan.budgets.context > plan.model.context:
        raise UserError(f"context: {plan.budgets.context} is more than the model's {plan.model.context} tokens.")
    form = ChatFormat.load(plan.model.path, plan.model.dialect)
    lengths = {task.id: _opening_length(task, form) for task in plan.tasks}
    task = max(lengths, key=lengths.__getitem__)
    longest = lengths[task]
    if longest >= plan.budgets.context:
        advice = "a larger --context" if plan.budgets.context < plan.model.context else "a model with more"
        raise UserError(
            f"context: {plan.budgets.context} tokens are too few for the prompt of {task}, which has {longest}; "
            f"{advice} is needed."
        )
    return form


def choose_tasks(
    environment: str,
    split: str,
    *,
    limit: int | None = None,
    categories: Sequence[str] = (),
    difficulty: str | None = None,
    split_scheme: str | None = None,
) -> tuple[Task, ...]:
    """The first tasks of a source's split, the categories in turn. Raises `UserError` for unknown names."""
    source = get_source(environment, key="env")
    check_known("split", source.parts, split)
    check_known("category", source.categories, *categories)
    if difficulty is not None and not source.takes_difficulty:
        raise UserError(f"difficulty: {source.name} has none; leave it out.")
    ids = chosen_ids(
        source, split, split_scheme=split_scheme, difficulty=difficulty, categories=categories, limit=limit
    )
    return tuple(map(source.task, ids))


def chosen_ids(
    source: TaskSource,
    part: str,
    *,
    split_scheme: str | None = None,
    difficulty: str | None = None,
    categories: Sequence[str] = (),
    limit: int | None = None,
) -> tuple[str, ...]:
    """The ids of the first tasks of a split. A task's number does not depend on the chosen categories."""
    pool = source.pool(part, split_scheme=split_scheme, difficulty=difficulty)
    if pool.size is None and limit is None:
        limit = ENDLESS_TASKS
    numbers = itertools.count() if pool.size is None else range(pool.size)
    wanted = (number for number in numbers if not categories or pool.category(number) in categories)
    return tuple(pool.task_id(number) for number in itertools.islice(wanted, limit))


def _opening_length(task: Task, form: ChatFormat) -> int:
    _, info = Dialogue(task, dialect=form.dialect).reset()
    return len(form.opening(info["messages"], info["tools"]))


def evaluation_tasks(environment: EnvironmentSection, evaluation: EvaluationSection) -> tuple[Task, ...]:
    """A run's evaluation tasks, the categories in turn. Raises `UserError` for unknown names."""
    source = get_source(evaluation.source or environment.source)
    return tuple(map(source.task, evaluation_ids(environment, evaluation)))


def evaluation_ids(environment: EnvironmentSection, evaluation: EvaluationSection) -> tuple[str, ...]:
    """The ids of `evaluation_tasks`.

    For the source of training they are from `environment.split_scheme`: other schemes may put training tasks there.
    """
    source = get_source(evaluation.source or environment.source)
    return chosen_ids(
        source,
        evaluation.split,
        split_scheme=environment.split_scheme if source is get_source(environment.source) else None,
        difficulty=environment.difficulty if source.takes_difficulty else None,
        limit=evaluation.tasks,
    )
