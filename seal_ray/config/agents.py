"""The agents of a run, each a module where it learns, by its name in the game; and what each is made with.

`Settings` is the protocol by which code reads a run's settings; `SealConfig` holds them for RLlib.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from envs.co_evolution import CURATOR, SOLVER, WRITER
from policies.curator.choice import is_model, learns
from policies.writer.choice import is_model as writer_is_model
from policies.writer.choice import learns as writer_learns
from seal_ray.config.sections import Curator, Engine, Learners, S, Solver, Training, Writer
from seal_ray.grpo.writer_updates import WRITER_UPDATES


class Settings(Protocol):
    """Whatever gives sections of settings as checked values.

    `seed` and the numbers of actors are RLlib's own; `engine_factory` makes the engines in place of their kind, or is
    None.
    """

    seed: Any
    num_learners: int
    num_env_runners: int
    engine_factory: Any

    def section(self, kind: type[S]) -> S:
        """A section. Raises `UserError` for a value that does not fit."""

    def get_config_for_module(self, module_id: str) -> Any:
        """The settings of one agent's module, as RLlib's learner takes them."""


def learning_agents(config: Settings) -> tuple[str, ...]:
    """The agents that learn in this run, each a module."""
    kinds = {CURATOR: learns(config.section(Curator).kind), WRITER: writer_learns(config.section(Writer).kind)}
    return (SOLVER, *(agent for agent, learning in kinds.items() if learning))


def curator_is_model(config: Settings) -> bool:
    return is_model(config.section(Curator).kind)


def model_agents(config: Settings) -> tuple[str, ...]:
    """The agents of this run that are language models, learning or not; the solver comes first."""
    kinds = {CURATOR: curator_is_model(config), WRITER: writer_is_model(config.section(Writer).kind)}
    return (SOLVER, *(agent for agent, model in kinds.items() if model))


def helper_section(config: Settings, agent: str) -> Curator | Writer:
    """The section of an agent that is not the solver. Their keys for a model have the same names."""
    return config.section(Writer) if agent == WRITER else config.section(Curator)


def documents_of(config: Settings, agent: str) -> int:
    """How many documents such an agent writes side by side."""
    section = helper_section(config, agent)
    return section.specifications if isinstance(section, Writer) else section.proposals


def shares_engines(config: Settings, agent: str = CURATOR) -> bool:
    """Whether an agent writes on the solver's engines: both are adapters of one frozen base, or the agent is it."""
    return config.section(Solver).lora_rank > 0 and helper_section(config, agent).model is None


def host_of(config: Settings, agent: str) -> str:
    """The agent on whose engines an agent samples: itself, or the solver."""
    return SOLVER if agent != SOLVER and shares_engines(config, agent) else agent


def engines_of(config: Settings, agent: str) -> int:
    """The engines that an agent has of its own."""
    if host_of(config, agent) != agent:
        return 0
    return config.section(Engine).num_engines if agent == SOLVER else 1


def adapters_of(config: Settings, agent: str) -> int:
    """The agents that have an adapter on the engines of this one, itself among them."""
    served = (each for each in learning_agents(config) if host_of(config, each) == agent)
    return sum(bool(model_of(config, each).lora_rank) for each in served)


def all_engines(config: Settings) -> int:
    return sum(engines_of(config, agent) for agent in model_agents(config))


def model_of(config: Settings, agent: str) -> Solver:
    """The model of an agent, in the words of the solver's section."""
    solver = config.section(Solver)
    if agent == SOLVER:
        return solver
    helper = helper_section(config, agent)
    own = helper.model is not None
    return solver.model_copy(
        update={
            "model": helper.model or solver.model,
            "dialect": None if own else solver.dialect,
            "context": helper.context,
            "temperature": helper.temperature,
            "lora_rank": solver.lora_rank if shares_engines(config, agent) else helper.lora_rank,
        }
    )


def training_of(config: Settings, agent: str) -> Training:
    """How an agent learns, in the words of the training section. All but the solver take one gradient step a window.

    The loss of a writer is that of its update; a curator has the solver's.
    """
    training = config.section(Training)
    if agent == SOLVER:
        return training
    helper = helper_section(config, agent)
    loss = {"loss": WRITER_UPDATES.find(helper.update).loss, "loss_settings": {}} if isinstance(helper, Writer) else {}
    return training.model_copy(
        update={
            **loss,
            "rounds": max(1, math.ceil(training.rounds / helper.update_every)),
            "groups": 1,
            "minibatch_groups": 1,
            "epochs": 1,
            "lr": helper.lr,
            "kl": helper.kl,
            "schedule": "constant",
            "warm_up": 0,
            "importance_cap": None,
        }
    )


def module_settings(config: Settings, agent: str) -> dict[str, Any]:
    """What an agent's `LMModule` is made with, as plain values."""
    return {
        "solver": model_of(config, agent).model_dump(mode="json"),
        "training": training_of(config, agent).model_dump(mode="json"),
        "learners": config.section(Learners).model_dump(mode="json"),
    }
