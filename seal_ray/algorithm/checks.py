"""Consistency of a run's settings, checked before anything starts, with one sentence for each mistake."""

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envs.dialects import DIALECTS
from envs.errors import UserError, check_known
from envs.interface.json_form import load_interface
from envs.sources import PARTS, SEEDS, get_source
from envs.specifications import writable
from policies.curator.base import CURATORS
from policies.engine.choice import check_tensor_parallel, default_kind
from policies.engine.requests import checkpoint_shapes, linear_layers
from policies.models import ModelFolder, open_model
from policies.task_writer.base import TASK_WRITERS
from seal_ray.config import schema
from seal_ray.config.resolve import LORA_TARGETS, AgentSpec, RunSpec
from seal_ray.evaluation.suites import PLAIN, Suites, evaluation_ids, make_suites
from seal_ray.grpo.advantages import ADVANTAGES
from seal_ray.grpo.rewards import REWARDS
from seal_ray.proposing.curator_rewards import CURATOR_REWARDS, CuratorReward
from seal_ray.proposing.recorded import recorded_windows
from seal_ray.proposing.task_rewards import TASK_REWARDS
from seal_ray.rollout.planner import plain_groups
from seal_ray.rollout.tasks import TaskStream, training_pool

_OWN_WORD = re.compile(r"^(split|split part|difficulty|interface|model): ")


def check_run(spec: RunSpec, *, weights: bool = True) -> ModelFolder:
    """Checks a run. Returns the solver's model. Raises `UserError` with one sentence.

    Without `weights`, models of a hub need not be downloaded: for plans.
    """
    from seal_ray.training.hint_stripped import RowLoss  # it loads torch

    check_seed(spec.seed)
    model = check_model(spec.solver, weights=weights)
    _check_engine("engine.kind", spec.engine.kind, model, spec.engine)
    _check_training(spec.training, spec.learners)
    _check_gpu_settings(spec)
    for registry, name in ((REWARDS, spec.environment.reward), (ADVANTAGES, spec.training.advantage)):
        if not callable(registry.make(name)):
            raise UserError(f"{registry.key}: {name} cannot be called.")
    for name in spec.learning_agents:
        RowLoss(spec.agents[name].training)
    _check_curator(spec)
    for agent in list(spec.agents.values())[1:]:
        _check_proposer_model(agent, spec.engine, weights=weights)
    _check_task_writer(spec)
    _check_tasks(spec.environment, spec.evaluation)
    return model


def check_memory(spec: RunSpec, model: ModelFolder) -> None:
    """Raises `UserError` if this machine's memory, or that of its GPUs, cannot hold the run.

    If `RAY_ADDRESS` names a cluster, its other machines may hold it, and nothing is checked.
    """
    from seal_ray.algorithm.memory_estimate import available, check_parts, parts

    if (os.environ.get("RAY_ADDRESS") or "local") == "local":
        check_parts(parts(spec, model), available(), spec=spec)


def check_model(solver: schema.SolverSection, *, weights: bool) -> ModelFolder:
    """Opens the solver's model, and checks the solver's settings. Raises `UserError`."""
    check_known("solver.dialect", DIALECTS, solver.dialect)
    model = open_model(solver.model, dialect=solver.dialect, weights=weights)
    for key in ("prompt", "response"):
        if getattr(solver, key) > solver.context:
            raise UserError(f"solver.{key}: {getattr(solver, key)} is more than solver.context, {solver.context}.")
    if solver.context > model.context:
        raise UserError(f"solver.context: {solver.context} is more than the model's {model.context} tokens.")
    if solver.lora_rank and (missing := set(LORA_TARGETS) - set(linear_layers(checkpoint_shapes(model.path)))):
        raise UserError(
            f"solver.lora_rank: {solver.model} has no layers named {', '.join(sorted(missing))}; set it to 0."
        )
    return model


def _check_engine(key: str, kind: str, model: ModelFolder, engine: schema.EngineSection) -> None:
    if kind == "vllm" and not importlib.util.find_spec("vllm"):
        raise UserError(f"{key}: vllm is not installed; install the cpu or gpu extra, or take transformers.")
    ranks, gpus = engine.tensor_parallel, engine.num_gpus_per_engine
    if ranks > 1 and "transformers" in (kind, default_kind()):
        raise UserError(f"engine.tensor_parallel: {ranks} needs {key}=vllm; transformers allows 1.")
    check_tensor_parallel("engine.tensor_parallel", ranks, model)
    if gpus not in (0, ranks) and max(gpus, ranks) > 1:
        allowed = f"{ranks}, or 0 on CPUs" if ranks > 1 else "at most 1"
        raise UserError(
            f"engine.num_gpus_per_engine: {gpus:g} does not fit engine.tensor_parallel={ranks}; it must be {allowed}."
        )


def _check_gpu_settings(spec: RunSpec) -> None:
    engine = spec.engine
    if engine.sleep and spec.training.staleness:
        raise UserError("engine.sleep: with training.staleness=1 engines play while learners compute; leave one out.")
    is_able = engine.num_gpus_per_engine and "transformers" not in (engine.kind, default_kind())
    for name in ("sleep", "batch_invariant"):
        if getattr(engine, name) and not is_able and spec.engine_factory is None:
            raise UserError(f"engine.{name}: it needs vLLM on GPUs, and engine.num_gpus_per_engine above 0.")


def _check_training(training: schema.TrainingSection, learners: schema.LearnersSection) -> None:
    if training.minibatch_groups > training.groups:
        raise UserError(
            f"training.minibatch_groups: {training.minibatch_groups} is more than training.groups, {training.groups}."
        )
    if training.staleness and training.loss == "grpo" and training.importance_cap is None:
        raise UserError(
            "training.importance_cap: with training.staleness=1 rollouts are of older weights; set a cap, such as 2."
        )
    if learners.fsdp and learners.num_learners < 2:
        raise UserError(
            f"learners.fsdp: it shards over 2 learners or more, and learners.num_learners is {learners.num_learners}."
        )
    if learners.num_gpus_per_learner and not learners.num_learners:
        raise UserError("learners.num_learners: 0 reserves no GPU for learning; set it to 1 or more.")
    if learners.num_learners > 1 and 0 < learners.num_gpus_per_learner <= 0.5:
        raise UserError(
            f"learners.num_gpus_per_learner: {learners.num_gpus_per_learner:g} has two learners on one GPU, which NCCL "
            "refuses; give each more than half."
        )


def _check_curator(spec: RunSpec) -> None:
    curator, training = spec.curator, spec.training
    if isinstance(curator, schema.InterfaceCuratorSection):
        _check_interface(curator)
    if isinstance(curator, schema.GuidingCuratorSection):
        _check_groups(curator, training)
    if not isinstance(curator, schema.LLMCuratorSection):
        CURATORS.make(curator.kind, dict(curator))
        return
    from policies.curator.llm import LLMCurator  # it loads what engines need

    if not issubclass(CURATORS.find(curator.kind), LLMCurator):
        raise UserError(f"curator.kind: {curator.kind} has is_model; it must be a subclass of LLMCurator.")
    reward = CURATOR_REWARDS.make(curator.reward)
    if not isinstance(reward, CuratorReward):
        raise UserError(f"curator.reward: {curator.reward} is no CuratorReward.")
    if curator.trainable and curator.proposals < 2:
        raise UserError("curator.proposals: a curator that learns needs 2 proposals or more to compare.")


def _check_interface(curator: schema.InterfaceCuratorSection) -> None:
    if curator.interface is None:
        return
    with _naming("curator.interface"):
        interface = load_interface(Path(curator.interface))
    if interface.fade:
        raise UserError(
            f"curator.interface: its fade is {interface.fade:g}, and training has none of an interface; "
            "curator.plain_share says how many groups play plain."
        )


def _check_groups(curator: schema.GuidingCuratorSection, training: schema.TrainingSection) -> None:
    if curator.pairs and training.group_size % 2:
        raise UserError(
            f"training.group_size: {training.group_size} is odd; curator.pairs plays half of a group plain."
        )
    share = curator.plain_share
    if share < 1 and plain_groups(share, training.groups, shown=True) == training.groups:
        raise UserError(
            f"training.groups: {training.groups}, with a curator.plain_share of {share:g} and one plain group a round "
            "at least, leaves none for the curator's interface; give more, or curator.kind=none."
        )


def _check_proposer_model(agent: AgentSpec, engine: schema.EngineSection, *, weights: bool) -> None:
    """Checks a proposer that is a language model."""
    with _naming(f"{agent.name}.model"):
        folder = open_model(agent.model, dialect=agent.dialect, weights=weights)
    if agent.owns_engines:
        _check_engine(f"{agent.name}.engine", agent.engine_kind, folder, engine)
        if agent.context > folder.context:
            raise UserError(f"{agent.name}.context: {agent.context} is more than the model's {folder.context} tokens.")
    if agent.response >= agent.context:
        raise UserError(
            f"{agent.name}.response: {agent.response} of {agent.context} tokens leaves no room for a prompt."
        )


def _check_task_writer(spec: RunSpec) -> None:
    section, environment = spec.task_writer, spec.environment
    if not isinstance(section, schema.WritingTaskWriterSection):
        return
    writable(environment.source)
    if environment.split != "train":
        raise UserError(f"environment.split: {environment.split!r} is given, and tasks are written for train alone.")
    recorded_windows(spec)
    if isinstance(spec.curator, schema.ProposerSection) and section.update_every % spec.curator.update_every:
        raise UserError(
            f"task_writer.update_every: {section.update_every} is no multiple of curator.update_every, "
            f"{spec.curator.update_every}; proposals are checked against the tasks of their window, which must exist."
        )
    if not isinstance(section, schema.LLMTaskWriterSection):
        return
    from policies.task_writer.llm import LLMTaskWriter  # it loads what engines need

    if not issubclass(TASK_WRITERS.find(section.kind), LLMTaskWriter):
        raise UserError(f"task_writer.kind: {section.kind} has is_model; it must be a subclass of LLMTaskWriter.")
    TASK_REWARDS.make(section.reward)
    if section.trainable and section.specifications < 2:
        raise UserError("task_writer.specifications: a task writer that learns needs 2 or more to compare.")


def _check_tasks(environment: schema.EnvironmentSection, evaluation: schema.EvaluationSection) -> None:
    source = get_source(environment.source)
    tested_source = get_source(evaluation.source, key="evaluation.source") if evaluation.source else source
    difficulty = environment.difficulty
    if difficulty is not None:
        with _naming("environment.difficulty"):
            for each in (source, tested_source):
                if each.takes_difficulty:
                    each.pool(each.parts[0], difficulty=difficulty)
    categories = source.categories if environment.categories is None else environment.categories
    check_known("environment.categories", source.categories, *categories)
    if source.endless:
        check_known("environment.split", source.parts, environment.split)
        TaskStream(environment, 0)
    else:
        with _naming("environment.split_scheme"):
            split = source.split(environment.split_scheme)
        with _naming("environment.split"):
            part = split.part(environment.split)
        if not any(task.category in categories for task in part):
            raise UserError(
                f"environment.split: {environment.split!r} of the split {split.name!r} has no task of "
                f"{', '.join(categories)}."
            )
    suites = make_suites(environment, evaluation)
    if evaluation.interval:
        _check_evaluation(environment, evaluation, suites)


def _check_evaluation(
    environment: schema.EnvironmentSection, evaluation: schema.EvaluationSection, suites: Suites
) -> None:
    source = get_source(evaluation.source or environment.source)
    if evaluation.split in PARTS and evaluation.split not in source.parts:
        raise UserError(
            f"evaluation.split: {source.name} has no {evaluation.split} tasks; evaluation.source can name a "
            "source that has."
        )
    check_known("evaluation.split", source.parts, evaluation.split)
    tested = evaluation_ids(environment, evaluation)
    if not tested:
        scheme = environment.split_scheme if source is get_source(environment.source) else None
        raise UserError(
            f"evaluation.split: {evaluation.split!r} of the split {(scheme or source.split().name)!r} has "
            "no tasks; take another, or set evaluation.interval to 0."
        )
    trained = training_pool(environment)
    trained_on = [task_id for task_id in tested if trained.holds(task_id)]
    if trained_on:
        raise UserError(
            f"evaluation.split: {len(trained_on)} of {len(tested)} tasks are trained on, {trained_on[0]!r:.80} for "
            "one; evaluation tasks must be others."
        )
    if evaluation.suites == [PLAIN]:
        return
    for task in suites.tasks:
        if trained.holds(task.id):
            raise UserError(
                f"evaluation.suites: {task.id} is trained on; evaluation tasks must be others than training tasks."
            )


def check_seed(seed: Any) -> None:
    """Raises `UserError` if a run cannot have this seed."""
    if type(seed) is not int or not 0 <= seed < SEEDS:
        raise UserError(f"seed: {seed!r:.80} does not fit; it must be a whole number from 0 to {SEEDS - 1}.")


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Begins sentences of errors with the setting instead of their own first word."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{key}: {_OWN_WORD.sub('', str(error))}") from None
