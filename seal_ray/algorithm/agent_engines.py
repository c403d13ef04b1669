"""Starting the engines that serve an agent: the solver's, or those of a curator that has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from envs.co_evolution import CURATOR, SOLVER
from seal_ray.algorithm.engine_actor import EngineSpec
from seal_ray.algorithm.engine_pool import EnginePool
from seal_ray.config import sections
from seal_ray.config.agents import learning_agents, model_of, shares_engines

if TYPE_CHECKING:
    from seal_ray.config.seal_config import SealConfig


def start_engines(config: SealConfig, agent: str) -> EnginePool:
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
        count=engine.num_engines if mine else 1,
        cpus=engine.num_cpus_per_engine,
        gpus=engine.num_gpus_per_engine,
        max_restarts=limits.max_engine_restarts,
        timeout=limits.engine_timeout,
    )
