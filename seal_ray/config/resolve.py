"""`RunSpec`: the settings of a run, resolved once. Only this file derives agents from settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from envs.roles import CURATOR, SOLVER, TASK_WRITER
from policies.models.choice import absolute_name
from seal_ray.config import schema
from seal_ray.config.schema import GuidingCuratorSection, LLMCuratorSection, LLMTaskWriterSection

LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Names of the layers that have LoRA adapters."""


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """A language model of a run: its model, where it samples, and how it learns.

    An agent samples on the engines of its `host`: itself, or the solver if it is an adapter or the base there.
    `num_engines` and `concurrent` (requests at once on each) describe its own engines.
    """

    name: str
    host: str
    model: str
    dialect: str | None
    dtype: str
    lora_rank: int
    gradient_checkpointing: bool
    prompt: int
    response: int
    context: int
    steps: int | None
    temperature: float
    engine_kind: str
    num_engines: int
    concurrent: int
    cache_share: float
    trainable: bool
    training: schema.TrainingSection

    @property
    def owns_engines(self) -> bool:
        return self.host == self.name

    @property
    def lora_alpha(self) -> int:
        """Scale of the adapter: its output is multiplied by `lora_alpha / lora_rank`."""
        return 2 * self.lora_rank

    @property
    def has_adapter(self) -> bool:
        return self.trainable and self.lora_rank > 0


@dataclass(frozen=True, slots=True)
class ArmSpec:
    """How the groups of a round are divided between arms.

    With `on_common_tasks` all arms of a window play the same tasks and are compared by a posterior.
    """

    pairs: bool = False
    plain_share: float = 1.0
    plain_share_end: float | None = None
    on_common_tasks: bool = False


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Everything that is decided at the start of a run. `agents` are its language models, the solver first."""

    seed: int
    agents: Mapping[str, AgentSpec]
    arms: ArmSpec
    environment: schema.EnvironmentSection
    engine: schema.EngineSection
    solver: schema.SolverSection
    curator: schema.CuratorSection
    task_writer: schema.TaskWriterSection
    reweighting: schema.ReweightingSection
    training: schema.TrainingSection
    evaluation: schema.EvaluationSection
    env_runners: schema.EnvRunnersSection
    learners: schema.LearnersSection
    fault_tolerance: schema.FaultToleranceSection
    engine_factory: Any = None

    @property
    def learning_agents(self) -> tuple[str, ...]:
        """The agents that learn, each an RLlib module."""
        return tuple(name for name, agent in self.agents.items() if agent.trainable)

    @property
    def num_engines(self) -> int:
        """Engines of all agents."""
        return sum(agent.num_engines for agent in self.agents.values())

    def adapters_on(self, host: str) -> int:
        """Number of adapters that the engines of this agent hold."""
        return sum(agent.has_adapter and agent.host == host for agent in self.agents.values())


class Resolved(Protocol):
    """A config as RLlib's actors get it, with the spec that it was resolved to."""

    num_learners: int

    @property
    def spec(self) -> RunSpec: ...


def resolve(seed: Any, sections: Mapping[str, Any], engine_factory: Any = None, directory: str = ".") -> RunSpec:
    """The spec of checked sections. Relative model folders lie in `directory`; an actor's own can differ."""
    curator, task_writer = sections["curator"], sections["task_writer"]
    agents = {SOLVER: _solver(sections["solver"], sections["engine"], sections["training"])}
    if isinstance(curator, LLMCuratorSection):
        agents[CURATOR] = _proposer(CURATOR, curator, curator.proposals, agents[SOLVER])
    if isinstance(task_writer, LLMTaskWriterSection):
        agents[TASK_WRITER] = _proposer(TASK_WRITER, task_writer, task_writer.specifications, agents[SOLVER])
    agents = {name: replace(agent, model=absolute_name(agent.model, directory)) for name, agent in agents.items()}
    return RunSpec(seed, agents, _arms(curator), **sections, engine_factory=engine_factory)


def _solver(solver: schema.SolverSection, engine: schema.EngineSection, training: schema.TrainingSection) -> AgentSpec:
    return AgentSpec(
        name=SOLVER,
        host=SOLVER,
        **dict(solver),
        engine_kind=engine.kind,
        num_engines=engine.num_engines,
        concurrent=engine.concurrent,
        cache_share=engine.cache_share,
        trainable=True,
        training=training,
    )


def _proposer(
    name: str, section: LLMCuratorSection | LLMTaskWriterSection, proposals: int, solver: AgentSpec
) -> AgentSpec:
    """A proposer takes one gradient step a window, with the solver's loss if it is a curator."""
    shared = solver.lora_rank > 0 and section.model is None
    training = solver.training
    update: dict[str, Any] = {
        "rounds": max(1, math.ceil(training.rounds / section.update_every)),
        "groups": 1,
        "minibatch_groups": 1,
        "epochs": 1,
        "lr": section.lr,
        "kl": section.kl,
        "schedule": "constant",
        "warm_up": 0,
        "importance_cap": None,
    }
    if isinstance(section, LLMTaskWriterSection):
        update["loss"] = "rwr"
    return AgentSpec(
        name=name,
        host=SOLVER if shared else name,
        model=section.model or solver.model,
        dialect=solver.dialect if section.model is None else None,
        dtype=solver.dtype,
        lora_rank=solver.lora_rank,
        gradient_checkpointing=solver.gradient_checkpointing,
        prompt=section.context,
        response=section.response,
        context=min(section.context, solver.context) if shared else section.context,
        steps=1,
        temperature=1.0,
        engine_kind=solver.engine_kind if shared else section.engine,
        num_engines=0 if shared else 1,
        concurrent=proposals,
        cache_share=1.0,
        trainable=section.trainable,
        training=training.model_copy(update=update),
    )


def _arms(curator: schema.CuratorSection) -> ArmSpec:
    if not isinstance(curator, GuidingCuratorSection):
        return ArmSpec()
    is_model = isinstance(curator, LLMCuratorSection)
    return ArmSpec(curator.pairs, curator.plain_share, curator.plain_share_end, is_model)
