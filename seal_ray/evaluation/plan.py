"""What an evaluation plays, checked whole before anything is started."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from envs.dialogue import Dialogue
from envs.errors import UserError
from envs.sources import Selection, TaskSource
from envs.task import Task
from policies.model_folder import ModelFolder
from policies.prompting import ChatFormat
from policies.rollouts import Job
from policies.solver import Budgets
from policies.trajectory import derive_seed

MAX_CONTEXT = 32_768
"""Context in tokens where none is given and the model has more."""


@dataclass(frozen=True, slots=True)
class Plan:
    """An evaluation. Always on the plain interface and under the official protocol: nothing here can change that."""

    model: ModelFolder
    environment: str
    split: str
    tasks: tuple[Task, ...]
    budgets: Budgets
    engine: str
    dtype: str
    seeds: int = 1
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    concurrent: int = 64

    def jobs(self) -> list[Job]:
        """One dialogue for each task and seed."""
        return [
            Job(task, derive_seed(self.seed, task.id, member)) for member in range(self.seeds) for task in self.tasks
        ]

    def settings(self) -> dict[str, Any]:
        """All that the outcome depends on, as JSON values: an evaluation goes on only where these are the same."""
        return {
            "model": str(self.model.path.resolve()),
            "model_files": self.model.fingerprint(),
            "dialect": self.model.dialect.name,
            "environment": self.environment,
            "split": self.split,
            "tasks": [task.id for task in self.tasks],
            "interface": "plain",
            "protocol": "official",
            "budgets": asdict(self.budgets),
            "engine": self.engine,
            "dtype": self.dtype,
            "seeds": self.seeds,
            "seed": self.seed,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }


def check_plan(plan: Plan) -> ChatFormat:
    """The model's chat format, once the plan is known to be possible. Raises `UserError` with one sentence."""
    if not plan.tasks:
        raise UserError("evaluation: no task is left to play; give a larger --limit or more categories.")
    if plan.seeds > 1 and plan.temperature == 0:
        raise UserError(f"--seeds: {plan.seeds} seeds give the same greedy dialogue; add --temperature 1.0.")
    if plan.budgets.context > plan.model.context:
        raise UserError(f"context: {plan.budgets.context} is more than the model's {plan.model.context} tokens.")
    form = ChatFormat.load(plan.model.path, plan.model.dialect)
    longest, task = max(
        ((length, task) for length, task in zip(_opening_lengths(plan, form), plan.tasks, strict=True)),
        key=lambda pair: pair[0],
    )
    if longest >= plan.budgets.context:
        advice = "a larger --context" if plan.budgets.context < plan.model.context else "a model with more"
        raise UserError(
            f"context: {plan.budgets.context} tokens are too few for the prompt of {task.id}, which has {longest}; "
            f"{advice} is needed."
        )
    return form


def choose_tasks(source: TaskSource, selection: Selection, *, limit: int | None = None) -> tuple[Task, ...]:
    """The selected tasks of a source, the categories in turn, at most `limit`. Raises `UserError` for unknown names."""
    try:
        return source.select(selection).tasks(limit)
    except UserError as error:
        # A part is given by --split.
        raise UserError(re.sub("^part: ", "split: ", str(error))) from None


def _opening_lengths(plan: Plan, form: ChatFormat) -> Iterator[int]:
    for task in plan.tasks:
        _, info = Dialogue(task, dialect=form.dialect).reset()
        yield len(form.opening(info["messages"], info["tools"]))
