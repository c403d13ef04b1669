"""The agents of a run, each a module where it learns, by its name in the game; and what each is made with.

`Settings` is the protocol by which code reads a run's settings; `SealConfig` holds them for RLlib.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

from envs.co_evolution import CURATOR, SOLVER
from policies.curator.choice import is_model, learns
from seal_ray.config.sections import Curator, Engine, Learners, S, Solver, Training


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
    return (SOLVER, CURATOR) if learns(config.section(Curator).kind) else (SOLVER,)


def curator_is_model(config: Settings) -> bool:
    return is_model(config.section(Curator).kind)


def model_agents(config: Settings) -> tuple[str, ...]:
    """The agents of this run that are language models, learning or not; the solver comes first."""
    return (SOLVER, CURATOR) if curator_is_model(config) else (SOLVER,)


def shares_engines(config: Settings) -> bool:
    """Whether the curator writes on the solver's engines: both are adapters of one frozen base, or the curator it."""
    return config.section(Solver).lora_rank > 0 and config.section(Curator).model is None


def host_of(config: Settings, agent: str) -> str:
    """The agent on whose engines an agent samples: itself, or the solver."""
    return SOLVER if agent == CURATOR and shares_engines(config) else agent


def engines_of(config: Settings, agent: str) -> int:
    """The engines that an agent has of its own."""
    if host_of(config, agent) != agent:
        return 0
    return config.section(Engine).num_engines if agent == SOLVER else 1


def all_engines(config: Settings) -> int:
    return sum(engines_of(config, agent) for agent in model_agents(config))


def model_of(config: Settings, agent: str) -> Solver:
    """The model of an agent, in the words of the solver's section."""
    solver = config.section(Solver)
    if agent == SOLVER:
        return solver
    curator = config.section(Curator)
    own = curator.model is not None
    return solver.model_copy(
        update={
            "model": curator.model or solver.model,
            "dialect": None if own else solver.dialect,
            "context": curator.context,
            "temperature": curator.temperature,
            "lora_rank": solver.lora_rank if shares_engines(config) else curator.lora_rank,
        }
    )


def training_of(config: Settings, agent: str) -> Training:
    """How an agent learns, in the words of the training section. A curator takes one gradient step a window."""
    training = config.section(Training)
    if agent == SOLVER:
        return training
    curator = config.section(Curator)
    return training.model_copy(
        update={
            "rounds": max(1, math.ceil(training.rounds / curator.update_every)),
            "groups": 1,
            "minibatch_groups": 1,
            "epochs": 1,
            "lr": curator.lr,
            "kl": curator.kl,
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
