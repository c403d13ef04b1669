"""Version 1 of the co-evolution game, with a task writer, in PettingZoo's form.

`tasks`, played instead of rejected specifications, default to generated training tasks. All other arguments are those
of `WrittenTasksGame`.
"""

from collections.abc import Sequence
from typing import Any

from pettingzoo.utils.conversions import turn_based_aec_to_parallel_wrapper
from pettingzoo.utils.wrappers import OrderEnforcingWrapper

from envs.co_evolution import Observation
from envs.co_evolution_tasks import WrittenTasksGame
from envs.sources import GENERATED, get_source
from envs.task import Task

_TASKS = 8


def raw_env(tasks: Sequence[Task] | None = None, **settings: Any) -> WrittenTasksGame:
    return WrittenTasksGame(_generated() if tasks is None else tasks, **settings)


def env(tasks: Sequence[Task] | None = None, **settings: Any) -> OrderEnforcingWrapper[str, Observation, str]:
    """The game in PettingZoo's wrapper that turns calls in a wrong order into clear errors."""
    return OrderEnforcingWrapper(raw_env(tasks, **settings))


def parallel_env(
    tasks: Sequence[Task] | None = None, **settings: Any
) -> turn_based_aec_to_parallel_wrapper[str, Observation, str]:
    """The game under the parallel interface: one action of a step is used, by the infos' `"active_agent"`."""
    return turn_based_aec_to_parallel_wrapper(raw_env(tasks, **settings))


def _generated() -> tuple[Task, ...]:
    source = get_source(GENERATED)
    pool = source.pool("train")
    return tuple(source.task(pool.task_id(number)) for number in range(_TASKS))
