"""The kinds of writers of tasks, by the name in `writer.kind`."""

from __future__ import annotations

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
        "llm": "policies.writer.llm:LLMWriter",
        "learning": "policies.writer.llm:LearningWriter",
    },
)
"""The kinds. A class without a model is made with the task source and a check of specifications.

A class with `is_model` is made as `LLMWriter` is, and is a subclass of it. With `learns` its model is trained.
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


def make_writer(kind: str, source: Writable, check: Check) -> TaskWriter:
    """A writer of a kind without a model."""
    found: type[TaskWriter] = WRITERS.find(kind)
    return found(source, check)  # type: ignore[call-arg]
