"""Tasks that somebody writes: what a source has that composes tasks from specifications.

A writer gives a specification, a value of the source's own without texts or ground truth; the source composes the task,
executes it and shows that it is sound, or says why there is none. Such a source is a `TaskSource` and a `Writable`.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from envs.errors import UserError
from envs.sources import get_source
from envs.task import Task


class Specification(Protocol):
    """What a task should be like. Immutable, compared by value."""

    @property
    def category(self) -> str: ...

    @property
    def depth(self) -> int:
        """The number of the user's requests."""
        ...

    @property
    def features(self) -> frozenset[str]:
        """What specifications are likened by."""
        ...

    @property
    def key(self) -> str:
        """The same for equal specifications, in every process; else different."""
        ...

    def dump(self) -> str:
        """The canonical text, which `Writable.read` reads again."""
        ...


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why there is no task of a specification, in one sentence."""

    reason: str


class Apart(Protocol):
    """Tasks that composed ones must share nothing with; the source says what that is."""


@runtime_checkable
class Writable(Protocol):
    """A source that composes tasks from specifications."""

    @property
    def specification_schema(self) -> Mapping[str, Any]:
        """The JSON schema of a specification, for constrained decoding."""
        ...

    @property
    def specification_help(self) -> str:
        """What a writer is told: the keys, and which values they can have."""
        ...

    @abstractmethod
    def read(self, text: str) -> Specification:
        """The specification in a text of any origin. Raises `UserError`: one sentence with the reason, within 10 ms."""

    @abstractmethod
    def draw(self, rng: random.Random, *, category: str | None = None, depth: int | None = None) -> Specification:
        """A specification at random, of that category and depth if they are given. There may be no task of it."""

    @abstractmethod
    def specification_in(self, task_id: str) -> Specification | None:
        """The specification of a task that was composed; None for any other task."""

    @abstractmethod
    def apart(self, tasks: Iterable[Task]) -> Apart:
        """These tasks, as `compose` needs them."""

    @abstractmethod
    def compose(
        self, specification: Specification, seed: int, *, part: str = "train", apart: Apart | None = None
    ) -> Task | Rejected:
        """A task of the specification, which shares nothing with those of `apart`.

        Its id says the specification and the seed, so that `TaskSource.task` composes it again, bit for bit.
        """


class OfCategories:
    """A source that composes tasks from specifications, for tasks of some categories: it draws and tells of no others.

    What is written of another category all the same is composed; whoever reads it must look.
    """

    def __init__(self, source: Writable, categories: Sequence[str]) -> None:
        self._source = source
        self._categories = tuple(categories)

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

    def read(self, text: str) -> Specification:
        return self._source.read(text)

    def draw(self, rng: random.Random, *, category: str | None = None, depth: int | None = None) -> Specification:
        return self._source.draw(rng, category=category or rng.choice(self._categories), depth=depth)

    def specification_in(self, task_id: str) -> Specification | None:
        return self._source.specification_in(task_id)

    def apart(self, tasks: Iterable[Task]) -> Apart:
        return self._source.apart(tasks)

    def compose(
        self, specification: Specification, seed: int, *, part: str = "train", apart: Apart | None = None
    ) -> Task | Rejected:
        return self._source.compose(specification, seed, part=part, apart=apart)


def likeness(a: Specification, b: Specification) -> float:
    """How like two specifications are, from 0 to 1: the features they share, of all that either has (Jaccard).

    0 for specifications of different categories.
    """
    if a.category != b.category:
        return 0.0
    return len(a.features & b.features) / max(1, len(a.features | b.features))


def writable(name: str, *, key: str = "environment.source") -> Writable:
    """The source of that name, where tasks can be written for it. Raises `UserError`."""
    source = get_source(name)
    if not isinstance(source, Writable):
        raise UserError(f"{key}: {name!r:.80} composes no tasks from specifications, so that none can be written.")
    return source
