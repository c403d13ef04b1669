"""The kinds of task writers, by the name in `task_writer.kind`."""

from envs.registry import Registry
from policies.task_writer.base import TaskWriter

TASK_WRITERS: Registry[type[TaskWriter]] = Registry(
    "task_writer.kind",
    "seal_ray.task_writers",
    {
        "none": "policies.task_writer.plain:NoTaskWriter",
        "static": "policies.task_writer.plain:StaticTaskWriter",
        "random": "policies.task_writer.plain:RandomTaskWriter",
        "shuffled": "policies.task_writer.shuffled:ShuffledTaskWriter",
        "llm": "policies.task_writer.llm:LLMTaskWriter",
    },
)
"""A class without a model is made with the task source and a check of specifications; one with `replays` also gets the
recorded windows of another run and the run's seed. One with `is_model` is a subclass of `LLMTaskWriter` and made like
it."""


def is_model(kind: str) -> bool:
    """Whether task writers of this kind are language models. Raises `UserError` for an unknown kind."""
    return bool(getattr(TASK_WRITERS.find(kind), "is_model", False))
