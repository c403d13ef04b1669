"""The kinds of task writers, by the name in `writer.kind`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from envs.registry import Registry
from envs.specifications import Writable
from policies.writer.base import Check, TaskWriter

WRITERS: Registry[type[TaskWriter]] = Registry(
    "writer.kind",
    "seal_ray.writers",
    {
        "none": "policies.writer.plain:NoWriter",
        "static": "policies.writer.plain:StaticWriter",
        "random": "policies.writer.plain:RandomWriter",
        "shuffled": "policies.writer.shuffled:ShuffledWriter",
        "llm": "policies.writer.llm:LLMWriter",
        "learning": "policies.writer.llm:LearningWriter",
    },
)
"""The kinds. A class without a model is made with the task source and a check of specifications.

One with `replays` also gets the recorded windows of another run and the run's seed. A class with `is_model` is a
subclass of `LLMWriter` and made like it. With `learns` its model is trained.
"""


def writes(kind: str) -> bool:
    """Whether writers of this kind write anything. Raises `UserError` for an unknown kind."""
    return WRITERS.find(kind) is not WRITERS.find("none")


def is_model(kind: str) -> bool:
    """Whether writers of this kind are language models. Raises `UserError` for an unknown kind."""
    return bool(getattr(WRITERS.find(kind), "is_model", False))


def learns(kind: str) -> bool:
    """Whether writers of this kind are language models that learn. Raises `UserError` for an unknown kind."""
    return is_model(kind) and bool(getattr(WRITERS.find(kind), "learns", False))


def replays(kind: str) -> bool:
    """Whether writers of this kind repeat the record of another run. Raises `UserError` for an unknown kind."""
    return bool(getattr(WRITERS.find(kind), "replays", False))


def make_writer(
    kind: str, source: Writable, check: Check, *, windows: Sequence[Sequence[str | None]] = (), seed: int = 0
) -> TaskWriter:
    """Makes a writer of a kind without a model. One that `replays` gets `windows` and `seed`."""
    kind_class: Any = WRITERS.find(kind)
    made: TaskWriter = kind_class(source, check, **({"windows": windows, "seed": seed} if replays(kind) else {}))
    return made
