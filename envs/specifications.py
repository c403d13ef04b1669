"""The interface of sources that compose tasks from specifications, which a task writer proposes.

A specification is a value of the source without texts or ground truth. The source composes a task, executes it and
verifies that it is sound, or returns the reason why there is none.
"""

import random
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from envs.errors import UserError
from envs.sources import get_source
from envs.task import Task


class Specification(Protocol):
    """A description of a task. Immutable, compared by value."""

    @property
    def category(self) -> str: ...

    @property
    def depth(self) -> int:
        """The number of the user's requests."""

    @property
    def features(self) -> frozenset[str]:
        """What `likeness` compares."""

    @property
    def key(self) -> str:
        """Equal for equal specifications, in every process; different for others."""

    def dump(self) -> str:
        """The canonical text, which `Writable.read` reads back."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a specification has no task, in one sentence."""

    reason: str


class Apart(Protocol):
    """Tasks that composed ones must share nothing with, as the source defines it."""


@runtime_checkable
class Writable(Protocol):
    """A source that composes tasks from specifications."""

    @property
    def specification_schema(self) -> Mapping[str, Any]:
        """The JSON schema of a specification, for constrained decoding."""

    @property
    def specification_help(self) -> str:
        """The instructions for a writer: the keys and their values."""

    @abstractmethod
    def read(self, text: str) -> Specification:
        """The specification in a text of any origin. Raises `UserError` with one sentence, within 10 ms."""

    @abstractmethod
    def draw(self, rng: random.Random, *, category: str | None = None, depth: int | None = None) -> Specification:
        """A random specification, of that category and depth if given. It may have no task."""

    @abstractmethod
    def specification_in(self, task_id: str) -> Specification | None:
        """The specification of a composed task; None for any other task."""

    @abstractmethod
    def apart(self, tasks: Iterable[Task]) -> Apart:
        """These tasks, for `compose`."""

    @abstractmethod
    def compose(
        self, specification: Specification, seed: int, *, part: str = "train", apart: Apart | None = None
    ) -> Task | Rejected:
        """A task of the specification that shares nothing with those of `apart`.

        Its id contains the specification and the seed, so that `TaskSource.task` composes it again, bit for bit.
        """


class CategoryFilter:
    """A source of composed tasks, restricted to some categories in its draws, schema and help.

    `read` and `compose` still accept other categories; callers must check.
    """

    def __init__(self, source: Writable, categories: Sequence[str]) -> None:
        self._source = source
        self._categories = tuple(categories)
        self.read, self.specification_in = source.read, source.specification_in
        self.apart, self.compose = source.apart, source.compose

    @property
    def specification_schema(self) -> Mapping[str, Any]:
        schema = dict(self._source.specification_schema)
        properties = schema.get("properties", {})
        if "category" in properties:
            schema["properties"] = {**properties, "category": {"enum": list(self._categories)}}
        return schema

    @property
    def specification_help(self) -> str:
        return f"{self._source.specification_help}\nOf these categories alone: {', '.join(self._categories)}."

    def draw(self, rng: random.Random, *, category: str | None = None, depth: int | None = None) -> Specification:
        return self._source.draw(rng, category=category or rng.choice(self._categories), depth=depth)


def likeness(a: Specification, b: Specification) -> float:
    """The Jaccard similarity of two specifications' features, from 0 to 1; 0 if their categories differ."""
    if a.category != b.category:
        return 0.0
    return len(a.features & b.features) / max(1, len(a.features | b.features))


def writable(name: str, *, key: str = "environment.source") -> Writable:
    """The source of that name, if it composes tasks. Raises `UserError` otherwise."""
    source = get_source(name)
    if not isinstance(source, Writable):
        raise UserError(f"{key}: {name!r:.80} composes no tasks from specifications, so that none can be written.")
    return source
