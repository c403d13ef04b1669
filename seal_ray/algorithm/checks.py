"""What must fit together in a config: checked before anything is started, each mistake in one sentence."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envs.co_evolution import CURATOR, WRITER
from envs.dialects import DIALECTS
from envs.errors import UserError, check_known
from envs.interface.document import load_interface
from envs.interface.value import MAX_GUIDELINES
from envs.sources import PARTS, SEEDS, get_source
from envs.specifications import writable
from policies.curator.choice import is_model, learns, shows_given_interface
from policies.engine.requests import check_temperature, checkpoint_shapes, linear_layers
from policies.models import ModelFolder, open_model
from policies.writer.choice import learns as writer_learns
from policies.writer.choice import writes
from seal_ray.algorithm.curation.rewards import by_rounds, needs_internalised
from seal_ray.algorithm.objects import check_objects, check_writer_objects, make_curator_reward, make_suites
from seal_ray.algorithm.sampling.groups import TaskStream, plain_groups, training_pool
from seal_ray.algorithm.tasks.recorded import recorded_windows
from seal_ray.config import sections
from seal_ray.config.agents import (
    Settings,
    curator_is_model,
    helper_section,
    learning_agents,
    model_agents,
    model_of,
    shares_engines,
    training_of,
)
from seal_ray.config.sections import SECTIONS
from seal_ray.evaluation.plan import evaluation_ids
from seal_ray.evaluation.suites import PLAIN
from seal_ray.grpo.reweighting import rho_table

_OWN_WORD = re.compile(r"^(split|split part|difficulty|interface|model): ")


def check_config(config: Settings, *, weights: bool = True) -> ModelFolder:
    """Checks all sections and what must fit together. Returns the solver's model.

    Without `weights`, models of a hub need not be at hand: for plans. Raises `UserError` with one sentence.
    """
    for kind in SECTIONS.values():
        config.section(kind)
    check_seed(config.seed)
    model = check_model(config.section(sections.Solver), weights=weights)
    _check_engine("engine.kind", config.section(sections.Engine).kind)
    _check_training(config.section(sections.Training), config.section(sections.Learners))
    reweighting = config.section(sections.Reweighting)
    check_known("reweighting.overrides", rho_table(reweighting.rho), *reweighting.overrides)
    _check_curator(config.section(sections.Curator), config.section(sections.Learners))
    _check_pairs(config.section(sections.Curator), config.section(sections.Training))
    check_objects(
        config.section(sections.Environment), config.section(sections.Training), config.section(sections.Curator)
    )
    check_writer_objects(config.section(sections.Writer))
    _check_losses(config)
    _check_curator_model(config, weights=weights)
    _check_writer(config, weights=weights)
    _check_tasks(config.section(sections.Environment), config.section(sections.Evaluation))
    check_temperature("evaluation.temperature", config.section(sections.Evaluation).temperature)
    return model


def check_memory(config: Settings, model: ModelFolder) -> None:
    """Raises `UserError` where this machine's memory, or that of its GPUs, cannot hold the run.

    Where `RAY_ADDRESS` names a cluster its other machines may hold it, and nothing is checked.
    """
    from seal_ray.config.memory import available, check_parts, parts

    if (os.environ.get("RAY_ADDRESS") or "local") == "local":
        check_parts(parts(config, model), available(), engine=config.section(sections.Engine))


def check_model(solver: sections.Solver, *, weights: bool) -> ModelFolder:
    """Opens the solver's model, and checks what must fit it. Raises `UserError`."""
    check_known("solver.dialect", DIALECTS, solver.dialect)
    model = open_model(solver.model, dialect=solver.dialect, weights=weights)
    for key in ("prompt", "response"):
        if getattr(solver, key) > solver.context:
            raise UserError(f"solver.{key}: {getattr(solver, key)} is more than solver.context, {solver.context}.")
    if solver.context > model.context:
        raise UserError(f"solver.context: {solver.context} is more than the model's {model.context} tokens.")
    if solver.lora_rank:
        check_known("solver.lora_targets", linear_layers(checkpoint_shapes(model.path)), *solver.lora_targets)
    return model


def _check_losses(config: Settings) -> None:
    from seal_ray.algorithm.learning.anchoring import RowLoss  # it loads torch

    for agent in learning_agents(config):
        RowLoss(training_of(config, agent))


def _check_engine(key: str, kind: str) -> None:
    if kind == "vllm" and not importlib.util.find_spec("vllm"):
        raise UserError(f"{key}: vllm is not installed; install the cpu or gpu extra, or take transformers.")


def _check_training(training: sections.Training, learners: sections.Learners) -> None:
    if training.minibatch_groups > training.groups:
        raise UserError(
            f"training.minibatch_groups: {training.minibatch_groups} is more than training.groups, {training.groups}."
        )
    if learners.fsdp and learners.num_learners < 2:
        raise UserError(
            f"learners.fsdp: it shards over 2 learners or more, and learners.num_learners is {learners.num_learners}."
        )
    if learners.num_learners > 1 and 0 < learners.num_gpus_per_learner <= 0.5:
        raise UserError(
            f"learners.num_gpus_per_learner: {learners.num_gpus_per_learner:g} has two learners on one GPU, which NCCL "
            "refuses; give each more than half."
        )


def _check_pairs(curator: sections.Curator, training: sections.Training) -> None:
    if curator.pairs and curator.kind != "none" and training.group_size % 2:
        raise UserError(
            f"training.group_size: {training.group_size} is odd; curator.pairs plays half of a group plain."
        )
    share = curator.plain_share
    if curator.kind != "none" and share < 1 and plain_groups(share, training.groups, shown=True) == training.groups:
        raise UserError(
            f"training.groups: {training.groups}, with a curator.plain_share of {share:g} and one plain group a round "
            "at least, leaves none for the curator's interface; give more, or curator.kind=none."
        )
    if curator.show == "when_failing" and not curator.pairs:
        raise UserError("curator.show: when_failing plays the plain half of a group first; set curator.pairs to true.")
    if training.anchor_cap_end is not None and training.anchor_cap is None:
        raise UserError("training.anchor_cap_end: there is no training.anchor_cap that could move there.")


def _check_curator_model(config: Settings, *, weights: bool) -> None:
    """What must fit where the curator is a language model."""
    if not curator_is_model(config):
        return
    curator, training = config.section(sections.Curator), config.section(sections.Training)
    anchored = max(training.anchor_share, training.anchor_share_end or 0.0) > 0
    views = training.view == "plain" and training.internalised and anchored
    if needs_internalised(make_curator_reward(curator)) and not views:
        raise UserError(
            f"curator.reward: {curator.reward} is about rows on plain views; set training.view to plain, "
            "training.internalised to true and training.anchor_share above 0."
        )
    _check_helper_model(config, CURATOR, weights=weights)
    if not learns(curator.kind):
        return
    if curator.temperature != 1.0:
        # What a grammar has restricted is scored by the policy itself, which engines do at temperature 1 only.
        raise UserError("curator.temperature: a curator that learns samples at temperature 1.")
    if curator.proposals < 2:
        raise UserError("curator.proposals: a curator that learns needs 2 proposals or more to compare.")


def _check_curator(curator: sections.Curator, learners: sections.Learners) -> None:
    if make_curator_reward(curator).needs_gradients and learners.fsdp:
        raise UserError(
            f"curator.reward: {curator.reward} compares whole gradients, which learners.fsdp does not hold."
        )
    _check_posterior(curator)
    if curator.interface is None:
        return
    if not shows_given_interface(curator.kind):
        shows = "no interface" if curator.kind == "none" else "its own proposals"
        raise UserError(f"curator.interface: the curator {curator.kind} shows {shows}; take fixed or rules.")
    with _naming("curator.interface"):
        interface = load_interface(Path(curator.interface))
    if interface.fade:
        raise UserError(
            f"curator.interface: its fade is {interface.fade:g}, and training has none of an interface; "
            "curator.plain_share says how many groups play plain."
        )
    if curator.kind == "rules" and len(interface.guidelines) + curator.keep > MAX_GUIDELINES:
        raise UserError(
            f"curator.keep: {curator.keep} guidelines do not fit beside the {len(interface.guidelines)} of "
            f"curator.interface; an interface shows at most {MAX_GUIDELINES}."
        )


def _check_posterior(curator: sections.Curator) -> None:
    if curator.choose == "posterior" and curator.tasks != "common" and not by_rounds(make_curator_reward(curator)):
        raise UserError(
            "curator.choose: the posterior compares arms on tasks that they share; set curator.tasks=common."
        )
    compared = is_model(curator.kind) and not by_rounds(make_curator_reward(curator))
    if curator.show == "when_failing" and (compared or curator.choose == "posterior"):
        other = " and curator.reward to transfer or internalised" if compared else ""
        raise UserError(
            "curator.show: when_failing plays an arm only where plain has failed, so that the two cannot be compared; "
            f"set it to always, or curator.choose to margin{other}."
        )
    if curator.share_out != "turns" and (curator.choose, curator.tasks) != ("posterior", "common"):
        raise UserError(
            f"curator.share_out: {curator.share_out} draws from the posterior over common tasks; "
            "set curator.choose=posterior and curator.tasks=common."
        )


def _check_helper_model(config: Settings, agent: str, *, weights: bool) -> None:
    """What must fit where an agent beside the solver is a language model."""
    section, solver = helper_section(config, agent), config.section(sections.Solver)
    settings = model_of(config, agent)
    with _naming(f"{agent}.model"):
        folder = open_model(settings.model, dialect=settings.dialect, weights=weights)
    shares = shares_engines(config, agent)
    if not shares:
        _check_engine(f"{agent}.engine", section.engine)
    if not shares and section.context > folder.context:
        raise UserError(f"{agent}.context: {section.context} is more than the model's {folder.context} tokens.")
    room = min(section.context, solver.context) if shares else section.context
    if section.response >= room:
        raise UserError(f"{agent}.response: {section.response} of {room} tokens leaves no room for a prompt.")


def _check_writer(config: Settings, *, weights: bool) -> None:
    writer, environment = config.section(sections.Writer), config.section(sections.Environment)
    if not writes(writer.kind):
        return
    writable(environment.source)
    if environment.split != "train":
        raise UserError(f"environment.split: {environment.split!r} is given, and tasks are written for train alone.")
    recorded_windows(config)
    curator = config.section(sections.Curator)
    if curator_is_model(config) and writer.update_every % curator.update_every:
        raise UserError(
            f"writer.update_every: {writer.update_every} is no multiple of curator.update_every, "
            f"{curator.update_every}; proposals are held against the tasks of their window, which must be there."
        )
    if WRITER not in model_agents(config):
        return
    _check_helper_model(config, WRITER, weights=weights)
    if not writer_learns(writer.kind):
        return
    if writer.temperature != 1.0:
        raise UserError("writer.temperature: a writer that learns samples at temperature 1.")
    if writer.specifications < 2:
        raise UserError("writer.specifications: a writer that learns needs 2 specifications or more to compare.")


def _check_tasks(environment: sections.Environment, evaluation: sections.Evaluation) -> None:
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
        with _naming("environment.division"):
            split = source.split(environment.division)
        with _naming("environment.split"):
            part = split.part(environment.split)
        if not any(task.category in categories for task in part):
            raise UserError(
                f"environment.split: {environment.split!r} of the split {split.name!r} has no task of "
                f"{', '.join(categories)}."
            )
    suites = make_suites(environment, evaluation)
    if not evaluation.interval:
        return
    if evaluation.split in PARTS and evaluation.split not in tested_source.parts:
        raise UserError(
            f"evaluation.split: {tested_source.name} has no {evaluation.split} tasks; evaluation.source can name a "
            "source that has."
        )
    check_known("evaluation.split", tested_source.parts, evaluation.split)
    tested = evaluation_ids(environment, evaluation)
    if not tested:
        division = environment.division if tested_source is source and environment.division else ""
        raise UserError(
            f"evaluation.split: {evaluation.split!r} of the split {(division or tested_source.split().name)!r} has "
            "no tasks; take another, or set evaluation.interval to 0."
        )
    learnt = training_pool(environment)
    trained_on = [task_id for task_id in tested if learnt.holds(task_id)]
    if trained_on:
        raise UserError(
            f"evaluation.split: {len(trained_on)} of {len(tested)} tasks are trained on, {trained_on[0]!r:.80} for "
            "one; evaluation tasks must be others."
        )
    if evaluation.suites == [PLAIN]:
        return
    for task in suites.tasks:
        if learnt.holds(task.id):
            raise UserError(
                f"evaluation.suites: {task.id} is trained on; evaluation tasks must be others than training tasks."
            )


def check_seed(seed: Any) -> None:
    """Raises `UserError` where a run cannot have this seed."""
    if type(seed) is not int or not 0 <= seed < SEEDS:
        raise UserError(f"seed: {seed!r:.80} does not fit; it must be a whole number from 0 to {SEEDS - 1}.")


@contextmanager
def _naming(key: str) -> Iterator[None]:
    """Names the setting in the sentences of what is called, in place of the word that they begin with."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{key}: {_OWN_WORD.sub('', str(error))}") from None
