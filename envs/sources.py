"""Task sources: what a run needs of a benchmark, and the registry of sources.

A source owns its tasks with their worlds, users and judgement; its parts, divisions, categories and difficulty; and its
tool documents. `toolworld` and `bfcl` are built in. A custom source is an object with the members of `TaskSource`, most
simply a `TaskSet`; a setting names it as `package.module:NAME`, or by an entry point in the group `seal_ray.sources`.
"""

import itertools
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar, runtime_checkable

from envs.errors import UserError, check_known
from envs.registry import Registry
from envs.task import Task, ToolDoc, sorted_categories

T = TypeVar("T")

PARTS = ("train", "dev", "test")
"""To train on, to tune on, and to measure at the end."""
SEEDS = 1_000_000
"""Seeds of runs are below it: sources without end write them into task ids."""


@dataclass(frozen=True, slots=True)
class Split:
    """Three disjoint lists of tasks. If `leaky`, parts may share stories; `ignored` has a split file's unused keys."""

    name: str
    train: tuple[Task, ...]
    dev: tuple[Task, ...]
    test: tuple[Task, ...]
    leaky: bool
    ignored: tuple[str, ...] = ()

    def part(self, name: str) -> tuple[Task, ...]:
        """One part by name, or "all". Raises `UserError` for an unknown part."""
        if name == "all":
            return self.train + self.dev + self.test
        check_known("split part", (*PARTS, "all"), name)
        part: tuple[Task, ...] = getattr(self, name)
        return part


@dataclass(frozen=True, slots=True)
class Overlap:
    """How many of the `tasks` in the part `of` share something with a task of the part `known`.

    `scenario` counts tasks with the same or a linked scenario, `ground_truth` tasks that the same calls solve.
    """

    known: str
    of: str
    tasks: int
    scenario: int
    ground_truth: int


Categories = Sequence[str] | None
"""The categories of a pool; None for all of the source."""


class TaskPool(Protocol):
    """The tasks of one part in their order, by number from 0."""

    @property
    def size(self) -> int | None:
        """Number of tasks; None if there is no end."""

    def task_id(self, number: int, seed: int = 0) -> str:
        """The id of a task. `seed` selects a sequence if the pool has no end."""

    def category(self, number: int) -> str:
        """The category of that task."""

    def holds(self, task_id: str) -> bool:
        """Whether the pool, or its part if it has no end, contains the task of that id."""


class TaskSource(Protocol):
    """A benchmark as a run uses it; it holds no state of a run. The defaults suit sources that have an end."""

    name: str
    """Its name in tables and titles."""
    about: str
    """A phrase: "multi-turn tasks of …"."""
    parts: tuple[str, ...] = PARTS
    """Its parts, out of `PARTS`."""
    categories: tuple[str, ...]
    """Its categories, in the order of tables."""
    endless: bool = False
    """Whether it generates tasks without end; its parts must then be disjoint by construction."""
    takes_difficulty: bool = False
    """Whether `pool` takes the code of a difficulty."""
    protocol: str = "official"
    """The rules of dialogues in evaluation, "official" or "seal" (`envs.dialogue.Protocol`)."""
    context: int | None = None
    """Context of dialogues in evaluation, in tokens; None for the default."""

    @abstractmethod
    def tools(self) -> Mapping[str, ToolDoc]:
        """Every tool that a task can offer, by name. Names and documents are public."""

    def public_texts(self) -> Iterable[str]:
        """Further texts whose words the leak guard accepts."""
        return ()

    @abstractmethod
    def owns(self, task_id: str) -> bool:
        """Whether the id has this source's form; the task need not exist."""

    @abstractmethod
    def task(self, task_id: str) -> Task:
        """The task of that id. Raises `UserError` if there is none."""

    def pool(
        self,
        part: str,
        *,
        split_scheme: str | None = None,
        difficulty: str | None = None,  # noqa: ARG002 - `takes_difficulty` says that there is none
        categories: Categories = None,
    ) -> TaskPool:
        """The tasks of a part in these categories, the categories in turn. Raises `UserError` for bad names."""
        tasks = self.split(split_scheme).part(part)
        return FinitePool(tuple(alternating_categories(tasks, self.categories if categories is None else categories)))

    @abstractmethod
    def split(self, split_scheme: str | None = None, *, seed: int = 0) -> Split:
        """All tasks, divided by `split_scheme` (None: the default). `seed` is for random divisions.

        Raises `UserError` if the split_scheme is unknown, or if there is no end.
        """

    def overlaps(self, split: Split) -> list[Overlap]:
        """What dev and test share with train, and test with dev, for the parts that have tasks."""
        return overlaps_of(split, lambda task: task.scenario)


def overlaps_of(
    split: Split, story: Callable[[Task], object], solution: Callable[[Task], object] | None = None
) -> list[Overlap]:
    """Overlaps of parts, by the identity of a task's story and of its solution, if given."""
    overlaps = []
    for known, of in itertools.combinations(PARTS, 2):
        one, other = split.part(known), split.part(of)
        if one and other:
            solved = 0 if solution is None else _shared(one, other, solution)
            overlaps.append(Overlap(known, of, len(other), _shared(one, other, story), solved))
    return overlaps


def _shared(one: Iterable[Task], other: Iterable[Task], key: Callable[[Task], object]) -> int:
    known = {key(task) for task in one}
    return sum(key(task) in known for task in other)


class Played(Protocol):
    """What result files need of a dialogue: `completions` are the solver's, by turn and step."""

    @property
    def task(self) -> str: ...

    @property
    def category(self) -> str: ...

    @property
    def labels(self) -> tuple[str, ...]: ...

    @property
    def completions(self) -> tuple[tuple[str, ...], ...]: ...


@runtime_checkable
class OfficialResults(Protocol):
    """A source whose benchmark has its own grader."""

    def write_results(self, folder: Path, played: Sequence[Played], dialect: str) -> str:
        """Writes the files that the grader reads, and returns its command line. Raises `UserError`."""

    def grades(self, task_id: str) -> bool:
        """Whether the grader has the task."""


@dataclass(frozen=True)
class FinitePool:
    """A list of tasks as a `TaskPool`."""

    tasks: tuple[Task, ...]

    @cached_property
    def _ids(self) -> frozenset[str]:
        return frozenset(task.id for task in self.tasks)

    @property
    def size(self) -> int:
        return len(self.tasks)

    def task_id(self, number: int, seed: int = 0) -> str:  # noqa: ARG002 - there is one sequence
        return self.tasks[number].id

    def category(self, number: int) -> str:
        return str(self.tasks[number].category)

    def holds(self, task_id: str) -> bool:
        return task_id in self._ids


class TaskSet(TaskSource):
    """A source with a fixed set of tasks, from which all else follows. Parts must share no id."""

    def __init__(
        self,
        name: str,
        about: str,
        parts: Mapping[str, Sequence[Task]],
        *,
        protocol: str = "official",
        context: int | None = None,
        public_texts: Iterable[str] = (),
    ) -> None:
        check_known(f"{name}: part", PARTS, *parts)
        self.name = name
        self.about = about
        self.protocol = protocol
        self.context = context
        self._public_texts = tuple(public_texts)
        tasks = {part: tuple(parts.get(part, ())) for part in PARTS}
        self.parts = tuple(part for part in PARTS if tasks[part])
        self._split = Split(name, tasks["train"], tasks["dev"], tasks["test"], leaky=False)
        every = self._split.part("all")
        for known, of in itertools.combinations(PARTS, 2):
            check_disjoint(tasks[known], tasks[of], names=(f"{name}: {known}", of))
        self._tasks = {task.id: task for task in every}
        if len(self._tasks) < len(every):
            ((repeated, _),) = Counter(task.id for task in every).most_common(1)
            raise UserError(f"{name}: two tasks have the id {repeated!r:.80}; each needs one of its own.")
        self._tools = {tool.name: tool for task in every for tool in task.all_tools}
        self.categories = tuple(sorted_categories(task.category for task in every))
        _check_categories(name, self.categories)

    def tools(self) -> Mapping[str, ToolDoc]:
        return MappingProxyType(self._tools)

    def public_texts(self) -> tuple[str, ...]:
        return self._public_texts

    def owns(self, task_id: str) -> bool:
        return task_id in self._tasks

    def task(self, task_id: str) -> Task:
        check_known("task", self._tasks, task_id)
        return self._tasks[task_id]

    def split(self, split_scheme: str | None = None, *, seed: int = 0) -> Split:  # noqa: ARG002 - it is fixed
        if split_scheme is not None:
            raise UserError(
                f"split: {split_scheme!r:.80} is not known; {self.name} is divided in one way, leave it out."
            )
        return self._split


SOURCES: Registry[TaskSource] = Registry(
    "environment.source",
    "seal_ray.sources",
    {
        "toolworld": "envs.toolworld.source:SOURCE",
        "bfcl": "envs.bfcl.source:SOURCE",
        "bfcl-renamed": "envs.bfcl.source:RENAMED",
    },
)
GENERATED = "toolworld"
"""The default source of runs."""
BETWEEN = "+"
"""Separates the sources of a mixture in its name."""
_MIXTURES: Registry[Callable[..., TaskSource]] = Registry(SOURCES.key, SOURCES.group, {BETWEEN: "envs.mixture:mixture"})
"""Makes one source of several; imported lazily, as it imports this module."""
BENCHMARK = "bfcl"
"""The default source of `seal-ray tasks`."""

own_sources: list[TaskSource] = []
"""The other sources that a setting has named so far in this process."""


def get_source(name: str, *, key: str = SOURCES.key) -> TaskSource:
    """The source of that name or import path, or the mixture of several. Raises `UserError`, which names `key`."""
    if BETWEEN in name:
        return _MIXTURES.find(BETWEEN)(name, key=key)
    try:
        source = SOURCES.find(name)
    except UserError as error:
        raise UserError(f"{key}:{str(error).removeprefix(SOURCES.key + ':')}") from None
    if name not in SOURCES.built_in and source not in own_sources:
        if isinstance(source, type):
            raise UserError(f"{key}: {name!r:.80} is a class; name an instance of it.")
        members = dict.fromkeys((*TaskSource.__annotations__, *vars(TaskSource)))
        lacking = [member for member in members if member[0] != "_" and not hasattr(source, member)]
        if lacking:
            raise UserError(f"{key}: {name!r:.80} is no task source; it lacks {', '.join(lacking[:3])}.")
        _check_categories(f"{key}: {source.name}", source.categories)
        own_sources.append(source)
    return source


def _check_categories(whose: str, categories: Iterable[str]) -> None:
    for category in categories:
        if "/" in category:
            raise UserError(f"{whose}: the category {category!r:.80} has a slash, which parts the names of metrics.")


def known_sources() -> tuple[TaskSource, ...]:
    """The built-in sources and the sources that a setting has named. Hashable."""
    return (*map(SOURCES.find, SOURCES.built_in), *own_sources)


def find_task(task_id: str, sources: Iterable[str] = ()) -> Task:
    """The task of that id, from one of these sources or a built-in one. Raises `UserError`."""
    named = [get_source(name) for name in sources]
    known = [*named, *(get_source(name) for name in SOURCES.built_in)]
    fallback = named[0] if named else get_source(BENCHMARK)
    return next((source for source in known if source.owns(task_id)), fallback).task(task_id)


def all_tools() -> Mapping[str, tuple[ToolDoc, ...]]:
    """Every documented tool by name, of all known sources; sources can use one name in different ways."""
    return _all_tools(known_sources())


@lru_cache(maxsize=8)
def _all_tools(sources: tuple[TaskSource, ...]) -> Mapping[str, tuple[ToolDoc, ...]]:
    tools: dict[str, tuple[ToolDoc, ...]] = {}
    for source in sources:
        for name, tool in source.tools().items():
            if tool not in tools.get(name, ()):
                tools[name] = (*tools.get(name, ()), tool)
    return MappingProxyType(tools)


def alternating_categories(tasks: Sequence[Task], categories: Sequence[str]) -> Iterator[Task]:
    """The tasks of these categories, one of each in turn, so that the first few are of all kinds."""
    return interleaved([task for task in tasks if task.category == category] for category in categories)


def interleaved(columns: Iterable[Iterable[T]]) -> Iterator[T]:
    """The first of each column, then the second of each, and so on; no item is None."""
    return (item for row in itertools.zip_longest(*columns) for item in row if item is not None)


def check_disjoint(left: Iterable[Task], right: Iterable[Task], *, names: tuple[str, str] = ("train", "eval")) -> None:
    """Raises `UserError` if a task is in both sets."""
    shared = {task.id for task in left} & {task.id for task in right}
    if shared:
        first = min(shared)
        raise UserError(
            f"split: {names[0]} and {names[1]} share {len(shared)} task(s), {first!r} for one; they must share none."
        )


def class_counts(tasks: Sequence[Task]) -> dict[str, int]:
    """Tasks by involved class; a task counts once for each."""
    return dict(sorted(Counter(name for task in tasks for name in task.classes).items()))
