"""Version 0 of the co-evolution game, in PettingZoo's form: `env()`, `parallel_env()`, `raw_env()`.

`tasks` default to the benchmark's training tasks. All other arguments are those of `CoEvolutionGame`.
"""

from collections.abc import Sequence
from typing import Any

from pettingzoo.utils.conversions import turn_based_aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from envs.co_evolution import CoEvolutionGame, Observation
from envs.sources import BENCHMARK, get_source
from envs.task import Task


def raw_env(tasks: Sequence[Task] | None = None, **settings: Any) -> CoEvolutionGame:
    return CoEvolutionGame(get_source(BENCHMARK).split().train if tasks is None else tasks, **settings)


def env(tasks: Sequence[Task] | None = None, **settings: Any) -> OrderEnforcingWrapper[str, Observation, str]:
    """The game in PettingZoo's wrapper that turns calls in a wrong order into clear errors."""
    return OrderEnforcingWrapper(raw_env(tasks, **settings))


def parallel_env(
    tasks: Sequence[Task] | None = None, **settings: Any
) -> turn_based_aec_to_parallel_wrapper[str, Observation, str]:
    """The game under the parallel interface: one action of a step is used, by the infos' `"active_agent"`."""
    return turn_based_aec_to_parallel_wrapper(raw_env(tasks, **settings))
