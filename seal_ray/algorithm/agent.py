"""`Agent`: a language model that acts in a run: the solver, the curator or the writer. It samples, and may learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

import ray.util

from envs.co_evolution import SOLVER
from envs.errors import SealError
from policies.documents import Writing
from policies.engine import BASE
from policies.engine.choice import default_kind
from policies.engine.requests import checkpoint_shapes
from policies.models import ModelFolder, open_model
from seal_ray.algorithm.learning.anchoring import Internalised
from seal_ray.algorithm.learning.learner_group import SealLearnerGroup
from seal_ray.algorithm.learning.weights import lora_adapter
from seal_ray.algorithm.sampling.engine_actor import EngineSpec, Payload
from seal_ray.algorithm.sampling.engine_pool import EnginePool, RemoteEngine
from seal_ray.algorithm.sampling.runner import Target
from seal_ray.config import sections
from seal_ray.config.agents import (
    Settings,
    adapters_of,
    all_engines,
    documents_of,
    engines_of,
    helper_section,
    host_of,
    learning_agents,
    model_agents,
    model_of,
)
from seal_ray.grpo.rows import Minibatch, Row

_OF_DOCUMENTS = ("loss", "kl", "ratio_first_error", "gradient_norm", "learning_rate")
"""What is logged of the update of an agent that writes documents."""


class RatioError(SealError, RuntimeError):
    """The learner does not hold the weights that the samples were drawn with."""


@dataclass(slots=True)
class Agent:
    """One agent: its model, the engines that serve it, and the version of the weights that they must have.

    An agent that does not `learn` keeps version 0, the model's own weights. One that does not `own` its engines is an
    adapter on those of another agent. `policy` is what samples on the engines: the agent's adapter, or the base.
    """

    name: str
    settings: sections.Solver
    """The agent's model and how it is sampled, in the words of the solver's section."""
    model: ModelFolder
    engines: EnginePool
    owns: bool
    learns: bool
    dtype: str
    ratio_tolerance: float
    engine_timeout: float
    version: int = 0
    learners: SealLearnerGroup | None = None
    """What computes its gradients; known once RLlib has built it."""

    @property
    def policy(self) -> str:
        """The name under which it samples on its engines."""
        return self.name if self.learns and self.settings.lora_rank else BASE

    def target(self) -> Target:
        return Target(self.engines.actors, self.policy, self.version)

    def connect(self) -> RemoteEngine:
        """The first of its engines, with the present version of its weights."""
        return RemoteEngine(
            self.engines.actors[0], policy=self.policy, version=self.version, timeout=self.engine_timeout
        )

    def weights(self) -> Mapping[str, Any]:
        """What it has learnt, by name, as whole tensors on the CPU."""
        return self._learners.module_weights(self.name)

    def learn(self, minibatches: Sequence[Minibatch]) -> dict[str, float]:
        """A gradient step for each minibatch. Returns what `SealLearner` counted; nothing where there is no minibatch.

        Raises `RatioError` where the learner does not hold the weights that the rows were sampled with.
        """
        if not minibatches:
            return {}
        learnt = self._learners.learn(self.name, minibatches)
        error = learnt["ratio_first_error"]
        if error > self.ratio_tolerance:
            raise RatioError(
                f"learner: before its first step the {self.name}'s log-probs are {error:.3g} nats from the engine's, "
                f"more than {self.ratio_tolerance:g} (training.ratio_tolerance); they do not hold the same weights."
            )
        self.version += 1
        return learnt

    def learn_documents(self, rows: list[Row]) -> dict[str, float]:
        """One step on documents that it wrote; its engines are sent the weights. Returns what is logged, by metric.

        Nothing happens, and nothing is logged, where there are no rows or the agent does not learn.
        """
        if not rows or not self.learns:
            return {}
        learnt = self.learn([Minibatch.of([rows])])
        self.deliver()
        return {f"{self.name}/{key}": learnt[key] for key in _OF_DOCUMENTS}

    def alignments(self, arms: Sequence[int]) -> tuple[list[list[float]], float]:
        """As `SealLearnerGroup.alignments`, of the update that it made last."""
        return self._learners.alignments(self.name, arms)

    def internalised(self) -> dict[int, Internalised]:
        """Arm → what became of its anchored rows in the update that it made last."""
        return self._learners.internalised(self.name)

    def deliver(self) -> None:
        """Sends its engines the weights that it has learnt. Each proves that it computes with them before it answers.

        That runs beside what follows; `heal` and `settle` raise what came of it.
        """
        if not self.learns:
            return
        if self.settings.lora_rank:
            adapter = lora_adapter(self.weights(), rank=self.settings.lora_rank, alpha=self.settings.lora_alpha)
            self.engines.deliver(Payload(self.name, self.version, adapter=adapter))
            return
        stored = self._learners.store(self.name, checkpoint_shapes(self.model.path), self.dtype)
        payload = Payload(BASE, self.version, weights=stored)
        self.engines.deliver(payload, elsewhere=lambda: replace(payload, weights=self._learners.copied(stored)))

    def settle(self) -> None:
        """Waits until all engines that it samples on have the weights that they were sent. Raises as `heal`."""
        self.engines.settle()

    def heal(self) -> None:
        """Looks after the engines that it owns, and starts them, without waiting. Raises as `EnginePool.heal`."""
        if self.owns:
            self.engines.heal()

    def close(self) -> None:
        if self.owns:
            self.engines.close()

    @property
    def _learners(self) -> SealLearnerGroup:
        assert self.learners is not None, f"the {self.name} learns before RLlib has built its learners"
        return self.learners


def start_agents(config: Settings) -> dict[str, Agent]:
    """The agents of a run that are language models, by name, the solver first. Their engines start meanwhile."""
    solver, engine = config.section(sections.Solver), config.section(sections.Engine)
    # On GPUs vLLM's attention rounds float32 to TF32.
    exact = solver.dtype == "float32" == engine.dtype and not engine.num_gpus_per_engine
    tolerance = config.section(sections.Training).ratio_tolerance or (1e-3 if exact else 0.2)
    agents: dict[str, Agent] = {}
    for name in model_agents(config):
        settings = model_of(config, name)
        host = agents.get(host_of(config, name))
        agents[name] = Agent(
            name=name,
            settings=settings,
            model=open_model(settings.model, dialect=settings.dialect),
            engines=host.engines if host is not None else start_engines(config, name),
            owns=host is None,
            learns=name in learning_agents(config),
            dtype=engine.dtype,
            ratio_tolerance=tolerance,
            engine_timeout=config.section(sections.FaultTolerance).engine_timeout,
        )
        agents[name].heal()
    return agents


def start_engines(config: Settings, agent: str) -> EnginePool:
    engine = config.section(sections.Engine)
    model = model_of(config, agent)
    mine = agent == SOLVER
    spec = EngineSpec(
        kind=engine.kind if mine else helper_section(config, agent).engine,
        model=model.model,
        dialect=model.dialect,
        context=model.context,
        dtype=engine.dtype,
        concurrent=engine.concurrent if mine else documents_of(config, agent),
        adapters=adapters_of(config, agent),
        lora_rank=model.lora_rank,
        cache_share=engine.cache_share if mine else 1.0,
        gpu_memory_share=engine.gpu_memory_share,
        threads=engine.threads,
        factory=config.engine_factory,
        agent=agent,
    )
    return EnginePool(spec, _bundles(config, agent), engine, config.section(sections.FaultTolerance))


def _bundles(config: Settings, agent: str) -> list[int]:
    """Where each of the agent's engines goes in a trial's placement group: the last bundles are the engines', in the
    order of the agents. Without a group each is -1, anywhere.

    RLlib's actors have bundles of their own: an engine that took one of these would keep them waiting for ever. Its
    learners take any bundle that has room, and so must come after the engines.
    """
    own = engines_of(config, agent)
    group = ray.util.get_current_placement_group()
    if group is None:
        return [-1] * own
    before = sum(engines_of(config, each) for each in takewhile(lambda each: each != agent, model_agents(config)))
    first = group.bundle_count - all_engines(config) + before
    return list(range(first, first + own))


def writing_of(config: Settings, agent: Agent, settings: sections.Curator | sections.Writer) -> Writing:
    """How an agent that writes documents samples them: on engines of its own, or on those that it shares."""
    kind = settings.engine if agent.owns else config.section(sections.Engine).kind
    host = agent.settings if agent.owns else config.section(sections.Solver)
    return Writing(
        context=min(settings.context, host.context),
        max_tokens=settings.response,
        temperature=settings.temperature,
        constrained=(default_kind() if kind == "auto" else kind) == "vllm",
        retries=settings.retries,
    )


def version_in(state: Mapping[str, Any], agent: str) -> int:
    """The version of an agent's weights. Checkpoints of earlier versions have a key for each of two agents."""
    if "versions" in state:
        return int(state["versions"][agent])
    return int(state["version" if agent == SOLVER else "curator_version"])
