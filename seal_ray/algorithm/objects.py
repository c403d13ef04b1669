"""The objects that settings name, made with the settings of their section: rewards, losses, curators and so on.

`section.key` holds the name. The class behind it takes the values of its section that its `Settings` ask for by name,
and what is its own alone from `section.key_settings`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeVar

from envs.errors import UserError
from envs.registry import Registry
from envs.task import JSON
from policies.curator.base import Curator as CuratorObject
from policies.curator.choice import CURATORS, is_model
from policies.writer.choice import WRITERS
from policies.writer.choice import is_model as writer_is_model
from seal_ray.algorithm.curation.rewards import CURATOR_REWARDS, CuratorReward
from seal_ray.algorithm.tasks.rewards import WRITER_REWARDS, WriterReward
from seal_ray.config.sections import Curator, Environment, Evaluation, Section, Training, Writer
from seal_ray.evaluation.suites import PLAIN, SUITES, Suite, Suites
from seal_ray.grpo.advantages import ADVANTAGES, GroupAdvantages
from seal_ray.grpo.anchor_weights import ANCHOR_WEIGHTS, AnchorWeight
from seal_ray.grpo.baselines import BASELINES
from seal_ray.grpo.losses import LOSSES, Loss
from seal_ray.grpo.rewards import REWARDS, Reward
from seal_ray.grpo.writer_updates import WRITER_UPDATES, WriterUpdate

T = TypeVar("T")
_SUITE_NAME = re.compile(r"[a-z][a-z0-9_]*")


def make_reward(environment: Environment) -> Reward:
    """The reward that `environment.reward` names. Raises `UserError`, as all functions here."""
    return _make(REWARDS, environment, environment.reward, environment.reward_settings)


def make_advantages(training: Training) -> GroupAdvantages:
    """A group's rewards to its advantages, by `training.baseline` and `training.advantage`."""
    return GroupAdvantages(
        _make(BASELINES, training, training.baseline, training.baseline_settings),
        _make(ADVANTAGES, training, training.advantage, training.advantage_settings),
    )


def make_loss(training: Training) -> Loss:
    return _make(LOSSES, training, training.loss, training.loss_settings, "needs_proximal")


def make_anchored_loss(training: Training) -> Loss:
    """The loss of anchored rows. Their ratio is to the learner's own log-probs, so that there is nothing to correct."""
    try:
        return make_loss(training.model_copy(update={"importance_cap": None}))
    except UserError as error:
        raise UserError(f"training.loss: {training.loss} must take an importance_cap of null too; {error}") from None


def make_anchor_weight(training: Training) -> AnchorWeight:
    return _make(ANCHOR_WEIGHTS, training, training.anchor_weight, training.anchor_weight_settings)


def make_curator_reward(curator: Curator) -> CuratorReward:
    return _make(CURATOR_REWARDS, curator, curator.reward, curator.reward_settings, "worst", "needs_gradients")


def make_plain_curator(curator: Curator) -> CuratorObject:
    """The curator of a kind that needs no model, by `curator.kind`."""
    needs = ("propose", "get_state", "set_state")
    return _make(CURATORS, curator, curator.kind, curator.kind_settings, *needs, called=False)


def make_suites(environment: Environment, evaluation: Evaluation) -> Suites:
    """The suites that `evaluation.suites` names. Their metrics are known from then on."""
    for name in evaluation.suites_settings:
        if name not in evaluation.suites:
            raise UserError(f"evaluation.suites_settings: {name!r:.80} is not one of evaluation.suites.")
    if PLAIN not in evaluation.suites:
        raise UserError("evaluation.suites: 'plain' must be one of them; comparisons and model cards read its success.")
    needs = ("name", "metrics", "tasks", "count")
    made: list[Suite] = []
    for name in dict.fromkeys(evaluation.suites):
        own = evaluation.suites_settings.get(name, {})
        suite = _make(SUITES, evaluation, name, own, *needs, called=False)
        if not isinstance(suite.name, str) or not _SUITE_NAME.fullmatch(suite.name):
            raise UserError(
                f"evaluation.suites: {name}: its name, {suite.name!r:.40}, must be of the letters a to z, digits and _."
            )
        if suite.name in [other.name for other in made]:
            raise UserError(f"evaluation.suites: two of them have the name {suite.name!r:.40}; rename one.")
        made.append(suite)
    return Suites(made, environment, evaluation)


def check_objects(environment: Environment, training: Training, curator: Curator) -> None:
    """Raises `UserError` for a name or a setting that does not fit. Suites are checked with their tasks."""
    make_reward(environment)
    make_advantages(training)
    make_curator_reward(curator)
    if not is_model(curator.kind):
        make_plain_curator(curator)
        return
    from policies.curator.llm import LLMCurator  # it loads what engines need

    if not issubclass(CURATORS.find(curator.kind), LLMCurator):
        raise UserError(f"curator.kind: {curator.kind} has is_model; it must be a subclass of LLMCurator.")
    if curator.kind_settings:
        raise UserError(f"curator.kind_settings: {curator.kind} takes no settings beside those of the section.")


def make_writer_reward(writer: Writer) -> WriterReward:
    """What a written task is worth, by `writer.reward`."""
    return _make(WRITER_REWARDS, writer, writer.reward, writer.reward_settings, "worst", "needs_probe")


def make_writer_update(writer: Writer) -> WriterUpdate:
    """What a writer learns from rewards, by `writer.update`."""
    return _make(WRITER_UPDATES, writer, writer.update, writer.update_settings, "loss")


def check_writer_objects(writer: Writer) -> None:
    """Raises `UserError` for a name or a setting of the writer's that does not fit."""
    make_writer_reward(writer)
    make_writer_update(writer)
    loss = getattr(WRITER_UPDATES.find(writer.update), "loss", None)
    if not isinstance(loss, str):
        raise UserError(f"writer.update: {writer.update} must have the name of its loss as a class attribute, `loss`.")
    LOSSES.find(loss)
    if writer_is_model(writer.kind):
        from policies.writer.llm import LLMWriter  # it loads what engines need

        if not issubclass(WRITERS.find(writer.kind), LLMWriter):
            raise UserError(f"writer.kind: {writer.kind} has is_model; it must be a subclass of LLMWriter.")


def _make(
    registry: Registry[type[T]],
    section: Section,
    name: str,
    own: Mapping[str, JSON],
    *attributes: str,
    called: bool = True,
) -> T:
    """The object with this name. Raises `UserError` where it lacks one of `attributes`, or cannot be `called`."""
    known = dict(section)
    for key in own:
        if key in known:
            where = registry.key.partition(".")[0]
            raise UserError(f"{registry.key}: {name}: {key!r:.80} belongs to the section; set {where}.{key}.")
    try:
        made: T = registry.make(name, known, own)
    except TypeError as error:
        raise UserError(
            f"{registry.key}: {name} cannot be made ({error}); it takes its Settings, or nothing."
        ) from None
    for attribute in attributes:
        if not hasattr(made, attribute):
            raise UserError(f"{registry.key}: {name} has no {attribute!r}, which such an object needs.")
    if called and not callable(made):
        raise UserError(f"{registry.key}: {name} cannot be called, which such an object needs.")
    return made
