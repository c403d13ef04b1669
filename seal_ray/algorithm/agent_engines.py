"""Starting the engines that serve an agent: the solver's, or those of a curator that has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import ray.util

from envs.co_evolution import CURATOR, SOLVER
from seal_ray.algorithm.engine_actor import EngineSpec
from seal_ray.algorithm.engine_pool import EnginePool
from seal_ray.config import sections
from seal_ray.config.agents import all_engines, learning_agents, model_of, shares_engines

if TYPE_CHECKING:
    from seal_ray.config.settings import Settings


def start_engines(config: Settings, agent: str) -> EnginePool:
    """The solver's engines, with room for a curator that shares them; or the curator's one."""
    engine, limits = config.section(sections.Engine), config.section(sections.FaultTolerance)
    curator, model = config.section(sections.Curator), model_of(config, agent)
    mine = agent == SOLVER
    served = {agent, CURATOR} if mine and shares_engines(config) else {agent}
    adapted = [each for each in served if each in learning_agents(config) and model_of(config, each).lora_rank]
    spec = EngineSpec(
        kind=engine.kind if mine else curator.engine,
        model=model.model,
        dialect=model.dialect,
        context=model.context,
        dtype=engine.dtype,
        concurrent=engine.concurrent if mine else curator.proposals,
        adapters=len(adapted),
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
    """Where each of the agent's engines goes in a trial's placement group: the last bundles are the engines', the
    curator's own the very last. Without a group each is -1, anywhere.

    RLlib's actors have bundles of their own: an engine that took one of these would keep them waiting for ever.
    """
    solvers = config.section(sections.Engine).num_engines
    count = solvers if agent == SOLVER else 1
    group = ray.util.get_current_placement_group()
    if group is None:
        return [-1] * count
    first = group.bundle_count - all_engines(config) + (0 if agent == SOLVER else solvers)
    return list(range(first, first + count))
