"""Starting the engines that serve an agent, with room for the agents that sample on them beside it."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

import ray.util

from envs.co_evolution import SOLVER
from seal_ray.algorithm.sampling.engine_actor import EngineSpec
from seal_ray.algorithm.sampling.engine_pool import EnginePool
from seal_ray.config import sections
from seal_ray.config.agents import all_engines, engines_of, host_of, learning_agents, model_agents, model_of

if TYPE_CHECKING:
    from seal_ray.config.settings import Settings


def start_engines(config: Settings, agent: str) -> EnginePool:
    """The engines of an agent that has its own."""
    engine, limits = config.section(sections.Engine), config.section(sections.FaultTolerance)
    curator, model = config.section(sections.Curator), model_of(config, agent)
    mine = agent == SOLVER
    served = [each for each in learning_agents(config) if host_of(config, each) == agent]
    spec = EngineSpec(
        kind=engine.kind if mine else curator.engine,
        model=model.model,
        dialect=model.dialect,
        context=model.context,
        dtype=engine.dtype,
        concurrent=engine.concurrent if mine else curator.proposals,
        adapters=sum(bool(model_of(config, each).lora_rank) for each in served),
        lora_rank=model.lora_rank,
        gpu_memory_share=engine.gpu_memory_share,
        factory=config.engine_factory,
        agent=agent,
    )
    return EnginePool(
        spec,
        bundles=_bundles(config, agent),
        cpus=engine.num_cpus_per_engine,
        gpus=engine.num_gpus_per_engine,
        max_restarts=limits.max_engine_restarts,
        timeout=limits.engine_timeout,
    )


def _bundles(config: Settings, agent: str) -> list[int]:
    """Where each of the agent's engines goes in a trial's placement group: the last bundles are the engines', in the
    order of the agents. Without a group each is -1, anywhere.

    RLlib's actors have bundles of their own: an engine that took one of these would keep them waiting for ever.
    """
    own = engines_of(config, agent)
    group = ray.util.get_current_placement_group()
    if group is None:
        return [-1] * own
    before = sum(engines_of(config, each) for each in takewhile(lambda each: each != agent, model_agents(config)))
    first = group.bundle_count - all_engines(config) + before
    return list(range(first, first + own))
