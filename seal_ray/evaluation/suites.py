"""Evaluation suites of a run, by the names in `evaluation.suites`: their tasks and metrics.

Every suite plays the plain interface under the official protocol of its source.
"""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

from envs import dialogue
from envs.dialogue import Dialogue
from envs.errors import UserError, check_known
from envs.registry import Registry
from envs.sources import TaskSource, get_source
from envs.task import Task, sorted_categories
from policies.models import ModelFolder
from policies.prompting import ChatFormat
from policies.rollouts import RolloutJob
from policies.solver import Budgets
from policies.trajectory import Trajectory, derive_seed
from seal_ray.config.schema import EnvironmentSection, EvaluationSection
from seal_ray.metrics import Metric, check, mean, register

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
    protocol: dialogue.Protocol = dialogue.Protocol.OFFICIAL

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


def budgets_for(model: ModelFolder, context: int | None, response: int) -> Budgets:
    """The limits of a dialogue of `context` tokens, by default the model's up to `MAX_CONTEXT`.

    Raises `UserError` for more than the model has.
    """
    tokens = min(model.context, MAX_CONTEXT) if context is None else context
    if tokens > model.context:
        raise UserError(f"context: {tokens} is more than the model's {model.context} tokens.")
    return Budgets(prompt=tokens, response=min(response, tokens), context=tokens)


def check_plan(plan: EvaluationPlan) -> ChatFormat:
    """The model's chat format. Raises `UserError` if the plan is not possible."""
    if not plan.tasks:
        raise UserError("evaluation: no task is left to play; give a larger --limit or more categories.")
    if plan.seeds > 1 and plan.temperature == 0:
        raise UserError(f"--seeds: {plan.seeds} seeds give the same greedy dialogue; add --temperature 1.0.")
    form = ChatFormat.load(plan.model.path, plan.model.dialect)
    openings = ((task.id, Dialogue(task, dialect=form.dialect).reset()[1]) for task in plan.tasks)
    lengths = {name: len(form.opening(info["messages"], info["tools"])) for name, info in openings}
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


PLAIN = "plain"
"""The suite whose metrics have no suite name: `evaluation/success` and so on."""

Outcomes = Mapping[str, Mapping[str, Mapping[str, int | None]]]
"""Suite → category → task → the reward of its dialogue, 0 or 1; None if the dialogue was lost."""


class Suite(Protocol):
    """Chooses tasks and counts their dialogues.

    `Metric("success", …)` in `metrics` is reported as `evaluation/NAME/success`. `tasks` returns the same tasks each
    time, which `envs.sources.find_task` finds by their ids, and no training task. `count` gets one dialogue of each
    task in their order, without lost ones, and returns values of some or all `metrics`.
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
