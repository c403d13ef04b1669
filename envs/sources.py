"""`TaskSource`: what a run asks of a benchmark; and the sources that there are, by name.

A source names its parts and categories, documents its tools, and gives tasks by id and in a fixed order, finite or
without end. A task brings the rest: its world (`Task.setting`), its user's texts or a user who answers (`Task.user`),
and its judgement: ground truth by turn, or a goal that the final state must meet (`Task.goal`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from envs.errors import UserError, unknown_value
from envs.registry import Registry
from envs.task import Category, Task, ToolDoc

BLOCK = 1_000_000
"""Task numbers that one seed of a run has to itself in a part without end."""
EVALUATED = 400
"""Tasks of a part without end that an evaluation plays where no limit is given."""
PARTS = ("train", "dev", "test")
"""The usual parts of a source."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The tasks that are meant: a part, and in it some categories, or all where none is named.

    `division` is another way of dividing the source into its parts, `difficulty` a code of how hard tasks are; None is
    the source's default.
    """

    part: str
    categories: tuple[str, ...] = ()
    division: str | None = None
    difficulty: str | None = None


class _Cached(Protocol):
    def cache_clear(self) -> None: ...


C = TypeVar("C", bound=_Cached)


class Part(Protocol):
    """Selected tasks of a source."""

    @property
    def size(self) -> int | None:
        """The number of tasks; None where there is no end."""
        ...

    def task_id(self, number: int) -> str:
        """The id of the task that training has at this number, from 0. The categories come in turn."""
        ...

    def tasks(self, limit: int | None) -> tuple[Task, ...]:
        """The tasks of an evaluation, the categories in turn, at most `limit`; without end, `EVALUATED` for None."""
        ...

    def has(self, task_id: str) -> bool:
        """Whether the task of that id is one of these."""
        ...

    def overlap(self, other: Part) -> str | None:
        """What evaluating on another part of the same source would leak, in one sentence, where this one is trained on.

        None where the two share no task.
        """
        ...


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many of the `tasks` of the part `of` share something with a task of the part `known`.

    `scenario` counts those that share their scenario or a linked one, `ground_truth` those that the same calls solve.
    """

    known: str
    of: str
    tasks: int
    scenario: int
    ground_truth: int


class Division(Protocol):
    """A source's tasks divided into its parts, for people to look at."""

    @property
    def name(self) -> str: ...

    @property
    def leaky(self) -> bool:
        """Whether tasks of two parts may share their scenario."""
        ...

    @property
    def ignored(self) -> tuple[str, ...]:
        """Keys of a file of tasks that have no meaning here."""
        ...

    @property
    def total(self) -> int:
        """The tasks of the source."""
        ...

    def part(self, name: str) -> tuple[Task, ...]:
        """One part; "all" is all of them together. Raises `UserError`."""
        ...

    def overlaps(self) -> list[Overlap]:
        """What later parts share with earlier ones."""
        ...


@runtime_checkable
class OfficialResults(Protocol):
    """A source whose own tools grade a model's dialogues."""

    def write_results(self, folder: Path, records: Sequence[Played], dialect: str) -> str:
        """Writes the dialogues in the official form. Returns the command that grades them. Raises `UserError`."""
        ...


class Played(Protocol):
    """A dialogue that is to be graded: its task, each turn's label, and the completions of each turn."""

    @property
    def task(self) -> str: ...

    @property
    def category(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def completions(self) -> tuple[tuple[str, ...], ...]: ...


class TaskSource(Protocol):
    """A benchmark. One object serves all runs of a process; it holds nothing of any run.

    Its `UserError`s begin with the word of a `Selection` that is wrong: "part: …", "division: …".
    """

    @property
    def about(self) -> str:
        """What its tasks are, in a few words: "generated tasks"."""
        ...

    @property
    def parts(self) -> Sequence[str]:
        """The names of its parts; "train" and "dev" are what runs ask for by default."""
        ...

    @property
    def categories(self) -> Sequence[str]:
        """The categories of its tasks, in the order in which they are shown."""
        ...

    @property
    def tools(self) -> Mapping[str, ToolDoc]:
        """The documents of all tools, by name. Interfaces and failure profiles name no others."""
        ...

    @property
    def public_texts(self) -> Iterable[str]:
        """More texts that models are shown anyway, whose words give nothing away."""
        ...

    @property
    def takes_difficulty(self) -> bool:
        """Whether a selection can have a difficulty."""
        ...

    def owns(self, task_id: str) -> bool:
        """Whether it has a task of that id."""
        ...

    def task(self, task_id: str) -> Task:
        """The task of that id: the same in every process. Raises `UserError`."""
        ...

    def divide(self, division: str | None, *, seed: int) -> Division:
        """All tasks by part. Raises `UserError` for a division that is not known, or where tasks have no end."""
        ...

    def select(self, selection: Selection) -> Part:
        """The tasks that are meant. Raises `UserError` for names that it does not know."""
        ...


SOURCES: Registry[TaskSource] = Registry(
    "source",
    "seal_ray.sources",
    {"toolworld": "envs.toolworld.source:SOURCE", "bfcl": "envs.bfcl.source:SOURCE"},
)
"""The task sources by name."""
DEFAULT_SOURCE, BENCHMARK = SOURCES.built_in
"""The source of a run that names none, and the benchmark, of which results are reported."""

_named: dict[str, TaskSource] = {}
_caches: list[Callable[[], None]] = []


def get_source(name: str) -> TaskSource:
    """The source of that name. Its tools and tasks are known from then on in this process. Raises `UserError`."""
    found = SOURCES.find(name)
    if name not in SOURCES.built_in and name not in _named:
        lacking = [member for member in vars(TaskSource) if member[0] != "_" and not hasattr(found, member)]
        if lacking:
            raise UserError(f"source: {name!r:.80} is no task source; it lacks {', '.join(lacking[:3])}.")
        _named[name] = found
        for forget in _caches:
            forget()
    return found


def known_sources() -> tuple[TaskSource, ...]:
    """The sources that were named in this process, then the built-in ones."""
    return (*_named.values(), *map(SOURCES.find, SOURCES.built_in))


def find_task(task_id: str) -> Task:
    """The task of that id, of the first known source that has it. Raises `UserError`."""
    for source in known_sources():
        if source.owns(task_id):
            return source.task(task_id)
    return SOURCES.find(BENCHMARK).task(task_id)


def over_sources(cached: C) -> C:
    """Marks a cached function whose result depends on the known sources: another source empties its cache."""
    _caches.append(cached.cache_clear)
    return cached


@over_sources
@cache
def known_tools() -> Mapping[str, ToolDoc]:
    """The documents of the tools of all known sources, by name."""
    return {name: tool for source in reversed(known_sources()) for name, tool in source.tools.items()}


def public_texts() -> Iterator[str]:
    """The texts of all known sources that models are shown anyway, beside the tools' documents."""
    for source in known_sources():
        yield from source.public_texts


@dataclass(frozen=True)
class FinitePart:
    """Tasks that are all there. `members` has them in the source's order."""

    members: tuple[Task, ...]
    categories: tuple[str, ...]

    @cached_property
    def chosen(self) -> tuple[Task, ...]:
        """The tasks, the categories in turn."""
        return tuple(in_turn(self.members, self.categories))

    @property
    def size(self) -> int | None:
        return len(self.members)

    def task_id(self, number: int) -> str:
        return self.chosen[number].id

    def tasks(self, limit: int | None) -> tuple[Task, ...]:
        return self.chosen[:limit]

    def has(self, task_id: str) -> bool:
        return any(task.id == task_id for task in self.members)

    def overlap(self, other: Part) -> str | None:
        shared = {task.id for task in self.chosen} & {task.id for task in other.tasks(None)}
        if not shared:
            return None
        return f"{len(shared)} of its tasks are trained on, {min(shared)!r} for one; evaluation must not play them"


@dataclass(frozen=True)
class OneDivision:
    """The parts of a source that has one division."""

    parts: Mapping[str, tuple[Task, ...]]
    name = "own"
    leaky = False
    ignored: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        return sum(map(len, self.parts.values()))

    def part(self, name: str) -> tuple[Task, ...]:
        if name == "all":
            return tuple(task for part in self.parts.values() for task in part)
        if name not in self.parts:
            raise unknown_value("split part", name, (*self.parts, "all"))
        return self.parts[name]

    def overlaps(self) -> list[Overlap]:
        return []


class FiniteSource:
    """A source whose tasks are all there: `parts` by name, each with its tasks. For benchmarks of one's own.

    `load` is called once, when the tasks are needed first, and gives each part's tasks. Raises `UserError` where two
    tasks have the same id.
    """

    takes_difficulty = False
    public_texts: Iterable[str] = ()

    def __init__(
        self,
        about: str,
        load: Callable[[], Mapping[str, Sequence[Task]]],
        *,
        tools: Mapping[str, ToolDoc],
        parts: Sequence[str] = PARTS,
        categories: Sequence[str] = tuple(Category),
    ) -> None:
        self._load = load
        self.about = about
        self.tools, self.parts, self.categories = tools, tuple(parts), tuple(categories)
        self._parts: Mapping[str, Sequence[Task]] | None = None
        self._by_id: dict[str, Task] = {}

    def owns(self, task_id: str) -> bool:
        return task_id in self._tasks()

    def task(self, task_id: str) -> Task:
        if not self.owns(task_id):
            raise unknown_value("task", task_id, self._tasks())
        return self._tasks()[task_id]

    def select(self, selection: Selection) -> FinitePart:
        self._tasks()
        assert self._parts is not None
        if selection.division is not None:
            raise UserError(f"division: {selection.division!r:.80} is not known; this source has one division.")
        if selection.part not in self.parts:
            raise unknown_value("part", selection.part, self.parts)
        return select_in_turn(self._parts.get(selection.part, ()), self, selection)

    def divide(self, division: str | None, *, seed: int) -> OneDivision:
        del seed  # there is nothing to draw
        parts = {name: tuple(self.select(Selection(name, division=division)).members) for name in self.parts}
        return OneDivision(parts)

    def _tasks(self) -> Mapping[str, Task]:
        if self._parts is None:
            parts = self._load()
            tasks = [task for part in self.parts for task in parts.get(part, ())]
            self._by_id = {task.id: task for task in tasks}
            if len(self._by_id) != len(tasks):
                repeated = next(task.id for task in tasks if self._by_id[task.id] is not task)
                raise UserError(f"task: {repeated!r:.80} is there twice; every task needs an id of its own.")
            self._parts = parts
        return self._by_id


def chosen_categories(source: TaskSource, selection: Selection) -> tuple[str, ...]:
    """The categories of a selection, in the source's order. Raises `UserError` for one that it does not have."""
    for name in selection.categories:
        if name not in source.categories:
            raise unknown_value("category", name, source.categories)
    return tuple(each for each in source.categories if not selection.categories or each in selection.categories)


def select_in_turn(tasks: Sequence[Task], source: TaskSource, selection: Selection) -> FinitePart:
    """These tasks as far as they are of the selection's categories, the categories in turn."""
    categories = chosen_categories(source, selection)
    return FinitePart(tuple(task for task in tasks if task.category in categories), categories)


def in_turn(tasks: Sequence[Task], categories: Sequence[str]) -> Iterator[Task]:
    """The tasks of these categories, one of each in turn, so that the first few are of all kinds."""
    columns = [[task for task in tasks if task.category == category] for category in categories]
    for row in itertools.zip_longest(*columns):
        yield from (task for task in row if task is not None)
