"""`Agent`: a language model of a run: the solver, the curator or the task writer."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import ray.util

from envs.errors import SealError
from envs.roles import SOLVER
from policies.engine import BASE
from policies.engine.choice import choose_dtype, choose_kind
from policies.engine.requests import checkpoint_shapes
from policies.engine.stored import StoredWeights
from policies.models import ModelFolder, open_model
from policies.prompting import ChatFormat
from policies.proposal_sampling import Writing
from seal_ray.config.resolve import AgentSpec, RunSpec
from seal_ray.grpo.rows import Minibatch, Row
from seal_ray.rollout.engine_actor import EngineSpec, Payload
from seal_ray.rollout.engine_pool import EnginePool, RemoteEngine
from seal_ray.rollout.runner import Target
from seal_ray.training.hint_stripped import Internalisation
from seal_ray.training.learner_group import SealLearnerGroup
from seal_ray.training.weights import lora_adapter

_PROPOSER_METRICS = ("loss", "kl", "ratio_first_error", "gradient_norm", "learning_rate")
"""Metrics of the update of an agent that proposes."""


class RatioError(SealError, RuntimeError):
    """Learner and engine have different weights."""


@dataclass(slots=True)
class Agent:
    """One agent: its model, its engines, and the version of the weights that they must have; 0 is the model folder's.

    `learners` is set after RLlib has built them.
    """

    spec: AgentSpec
    model: ModelFolder
    engines: EnginePool
    export_dtype: str
    engine_dtype: str
    """The type in which its engines compute, and get weights."""
    ratio_tolerance: float
    engine_timeout: float
    version: int = 0
    learners: SealLearnerGroup | None = None
    in_buckets: bool = False
    """Whether engines take weights from buffers on the learners' GPUs."""
    learns_on: bool = False
    """Whether learners learn while engines sample, so that an engine that restarts cannot get its weights from them."""

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def policy(self) -> str:
        """Its name on its engines: its adapter, or the base."""
        return self.name if self.spec.has_adapter else BASE

    def target(self) -> Target:
        """Its engines, for runners."""
        return Target(self.engines.actors, self.policy, self.version)

    def connect(self) -> RemoteEngine:
        """A client of its first engine, with the present version of its weights."""
        actor = self.engines.actors[0]
        return RemoteEngine(actor, policy=self.policy, version=self.version, timeout=self.engine_timeout)

    def make_proposer(self, kind: Any, **options: Any) -> Any:
        """A proposer of this class that samples with this agent."""
        spec, form = self.spec, ChatFormat.load(self.model.path, self.model.dialect)
        constrained = choose_kind(spec.engine_kind) == "vllm"
        writing = Writing(context=spec.context, max_tokens=spec.response, constrained=constrained)
        return kind(self.connect, form, writing, policy=self.policy, **options)

    def weights(self) -> Mapping[str, Any]:
        """Its learnt weights by name, as whole tensors on the CPU."""
        return self._learners.module_weights(self.name)

    def export(self, out: Path, *, adapter: Path | None = None) -> None:
        """Writes it as a model folder in `engine.dtype`, and what LoRA has learnt to `adapter` too."""
        self._learners.export(self.name, self.model, out, dtype=self.export_dtype, adapter=adapter)

    def learn(self, minibatches: Sequence[Minibatch], *, earlier: bool = False) -> dict[str, float]:
        """A gradient step for each minibatch. Returns the metrics of `SealLearner`; none without a minibatch.

        `earlier` weights may have sampled the rows; else it raises `RatioError` if they are not the learner's.
        """
        if not minibatches:
            return {}
        learnt = self._learners.learn(self.name, minibatches)
        error = learnt["ratio_first_error"]
        if error > self.ratio_tolerance and not earlier:
            raise RatioError(
                f"learner: before its first step the {self.name}'s log-probs are {error:.3g} nats from the engine's, "
                f"more than {self.ratio_tolerance:g} (training.ratio_tolerance); they do not hold the same weights."
            )
        return learnt

    def learn_proposals(self, rows: list[Row], *, earlier: bool = False) -> dict[str, float]:
        """One step on its proposals, and a delivery to its engines. Returns the metrics of the update.

        Does nothing without rows, or if the agent is not trainable. `earlier` is that of `learn`.
        """
        if not rows or not self.spec.trainable:
            return {}
        learnt = self.learn([Minibatch.of([rows])], earlier=earlier)
        self.deliver_update()
        return {f"{self.name}/{key}": learnt[key] for key in _PROPOSER_METRICS}

    def internalisation(self) -> dict[str, Internalisation]:
        """Arm → how the log-probs of its hint-stripped rows changed in the last update."""
        return self._learners.internalisation(self.name)

    def deliver_update(self) -> None:
        """Sends its engines the weights of an update, as the next version."""
        self.version += 1
        self.deliver()

    def deliver(self) -> None:
        """Sends its engines the learnt weights in the background; `heal` and `settle` raise failures."""
        if not self.spec.trainable:
            return
        if self.spec.has_adapter:
            adapter = lora_adapter(self.weights(), rank=self.spec.lora_rank, alpha=self.spec.lora_alpha)
            payload = Payload(self.name, self.version, adapter=adapter)
            self.engines.deliver(self.name, self.version, lambda: payload)
            return
        wanted = (self.name, checkpoint_shapes(self.model.path), self.engine_dtype)
        kept = self.in_buckets and self.learns_on
        if kept:
            self._learners.store(*wanted, learns_on=True)

        @cache
        def stored() -> StoredWeights:
            if not kept:
                self._learners.store(*wanted)
            return self._learners.stored(self.name)

        base = partial(Payload, BASE, self.version)

        def buckets() -> Iterator[Payload]:
            return (base(bucket=part) for part in self._learners.buckets(*wanted))

        self.engines.deliver(
            BASE,
            self.version,
            lambda: base(weights=stored()),
            lambda: self._learners.copied(stored(), lambda copies: base(weights=copies)),
            buckets=buckets if self.in_buckets else None,
            once=kept,
        )
        if kept:  # learners that learn answer nothing
            stored()

    def settle(self) -> None:
        """Blocks until its engines have proven the delivered weights. Raises as `heal`."""
        self.engines.settle()

    def heal(self) -> None:
        """Starts and restarts the engines that it owns, without blocking. Raises as `EnginePool.heal`."""
        if self.spec.owns_engines:
            self.engines.heal()

    def close(self) -> None:
        if self.spec.owns_engines:
            self.engines.close()

    @property
    def _learners(self) -> SealLearnerGroup:
        assert self.learners is not None, f"the {self.name} learns before RLlib has built its learners"
        return self.learners


def start_agents(spec: RunSpec) -> dict[str, Agent]:
    """The agents of a run by name, the solver first. Their engines start in the background."""
    # On GPUs vLLM's attention rounds float32 to TF32.
    exact = spec.solver.dtype == "float32" == spec.engine.dtype and not spec.engine.num_gpus_per_engine
    tolerance = spec.training.ratio_tolerance or (1e-3 if exact else 0.2)
    stale_tolerance = spec.training.ratio_tolerance or math.inf
    agents: dict[str, Agent] = {}
    for name, agent in spec.agents.items():
        agents[name] = Agent(
            spec=agent,
            model=open_model(agent.model, dialect=agent.dialect),
            engines=start_engines(spec, agent) if agent.owns_engines else agents[agent.host].engines,
            export_dtype=spec.engine.dtype,
            engine_dtype=choose_dtype(spec.engine.dtype, on_gpu=bool(spec.engine.num_gpus_per_engine)),
            ratio_tolerance=stale_tolerance if name == SOLVER and spec.training.staleness else tolerance,
            engine_timeout=spec.fault_tolerance.engine_timeout,
            in_buckets=spec.learners.num_gpus_per_learner > 0,
            learns_on=spec.training.staleness > 0,
        )
        agents[name].heal()
    return agents


def start_engines(spec: RunSpec, agent: AgentSpec) -> EnginePool:
    """The engines that an agent owns."""
    engine = EngineSpec(
        kind=agent.engine_kind,
        model=agent.model,
        dialect=agent.dialect,
        context=agent.context,
        dtype=spec.engine.dtype,
        concurrent=agent.concurrent,
        adapters=spec.adapters_on(agent.name),
        lora_rank=agent.lora_rank,
        cache_share=agent.cache_share,
        gpu_memory_share=spec.engine.gpu_memory_share,
        threads=spec.engine.threads,
        tensor_parallel=spec.engine.tensor_parallel,
        can_sleep=spec.engine.sleep,
        batch_invariant=spec.engine.batch_invariant,
        factory=spec.engine_factory,
        agent=agent.name,
    )
    return EnginePool(engine, _bundles(spec, agent), spec.engine, timeout=spec.fault_tolerance.engine_timeout)


def _bundles(spec: RunSpec, agent: AgentSpec) -> list[int]:
    """Bundle of each of the agent's engines in a trial's placement group: the last ones, in the order of the agents.

    Without a placement group, or without resources, each is -1, anywhere. An engine in a bundle of RLlib's actors would
    block them forever.
    """
    group = ray.util.get_current_placement_group()
    if group is None or not (spec.engine.num_cpus_per_engine or spec.engine.num_gpus_per_engine):
        return [-1] * agent.num_engines
    owners = [name for name, other in spec.agents.items() for _ in range(other.num_engines)]
    first = group.bundle_count - len(owners)
    return [first + place for place, owner in enumerate(owners) if owner == agent.name]
