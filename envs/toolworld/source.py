"""The toolworld as a task source: endless generated tasks, with parts that are disjoint by construction."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.bfcl.tools import all_tools
from envs.errors import UserError
from envs.sources import Split, TaskSource
from envs.specifications import Apart, Rejected, Specification
from envs.task import Category, Task, ToolDoc
from envs.toolworld.difficulty import Difficulty, difficulty_of
from envs.toolworld.generation import BLOCK, PREFIX, task_from_id, task_name
from envs.toolworld.shown_tools import DESCRIPTIONS
from envs.toolworld.specification.composing import PREFIX as WRITTEN
from envs.toolworld.specification.composing import KnownTasks, compose, specification_in, specified_task
from envs.toolworld.specification.json_form import read_specification, schema
from envs.toolworld.specification.value import TaskSpecification, draw_specification, help_text
from envs.toolworld.words import SPLITS


@dataclass(frozen=True, slots=True)
class SplitPool:
    """Generated tasks of one part: `BLOCK` per seed, the categories in turn."""

    part: str
    difficulty: Difficulty
    categories: tuple[Category, ...]
    size: int | None = None

    def task_id(self, number: int, seed: int = 0) -> str:
        at = seed * BLOCK + number
        return task_name(at, split=self.part, category=self._kind(at), difficulty=self.difficulty)

    def category(self, number: int) -> str:
        return str(self._kind(number))

    def holds(self, task_id: str) -> bool:
        return task_id.startswith((f"{PREFIX}{self.part}_", f"{WRITTEN}{self.part}_"))

    def _kind(self, number: int) -> Category:
        return self.categories[number % len(self.categories)]


class Toolworld(TaskSource):
    """The generated tasks, with difficulties as in `Difficulty.code`."""

    name = "toolworld"
    about = "tasks that seal_ray generates for its toolworld"
    parts = SPLITS
    categories = tuple(map(str, Category))
    endless = True
    takes_difficulty = True

    def tools(self) -> Mapping[str, ToolDoc]:
        """The public documents; the documents that tasks show are shorter forms with the same parameters."""
        return all_tools()

    def public_texts(self) -> Iterator[str]:
        return (text for name, description in DESCRIPTIONS.items() for text in (name, description))

    def owns(self, task_id: str) -> bool:
        return task_id.startswith(PREFIX)

    def task(self, task_id: str) -> Task:
        return specified_task(task_id) if task_id.startswith(WRITTEN) else task_from_id(task_id)

    def pool(
        self,
        part: str,
        *,
        split_scheme: str | None = None,  # noqa: ARG002 - parts are disjoint in one way
        difficulty: str | None = None,
        categories: Sequence[str] | None = None,
    ) -> SplitPool:
        kinds = tuple(Category(each) for each in (self.categories if categories is None else categories))
        pool = SplitPool(part, difficulty_of(difficulty), kinds)
        pool.task_id(0)  # a part that there is not is one sentence, here
        return pool

    def split(self, split_scheme: str | None = None, *, seed: int = 0) -> Split:  # noqa: ARG002 - there is none
        raise UserError("split: the toolworld generates tasks without end, which cannot be listed.")

    @property
    def specification_schema(self) -> Mapping[str, Any]:
        return schema()

    @property
    def specification_help(self) -> str:
        return help_text()

    read = staticmethod(read_specification)
    specification_in = staticmethod(specification_in)
    apart = staticmethod(KnownTasks)

    def draw(self, rng: random.Random, *, category: str | None = None, depth: int | None = None) -> TaskSpecification:
        return draw_specification(rng, category=None if category is None else Category(category), depth=depth)

    def compose(
        self, specification: Specification, seed: int, *, part: str = "train", apart: Apart | None = None
    ) -> Task | Rejected:
        assert isinstance(specification, TaskSpecification)
        made = compose(specification, seed, split=part)
        if isinstance(made, Rejected):
            return made
        shared = apart.shared(made) if isinstance(apart, KnownTasks) else None
        return made.task if shared is None else Rejected(f"specification: its task shares {shared} with another.")


SOURCE = Toolworld()
