"""The toolworld as a task source: generated tasks without end, parts disjoint by construction."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from envs.bfcl.tools import all_tools
from envs.errors import UserError
from envs.sources import Overlap, Split, TaskSource
from envs.task import Category, Task, ToolDoc
from envs.toolworld.difficulty import Difficulty, difficulty_of
from envs.toolworld.documents import DESCRIPTIONS
from envs.toolworld.generation import BLOCK, PREFIX, task_from_id, task_name
from envs.toolworld.words import SPLITS


@dataclass(frozen=True, slots=True)
class Pool:
    """Generated tasks of one part. A seed has `BLOCK` of them, the categories in turn."""

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
        return task_id.startswith(f"{PREFIX}{self.part}_")

    def _kind(self, number: int) -> Category:
        return self.categories[number % len(self.categories)]


class Toolworld(TaskSource):
    """The generated tasks; `Difficulty.code` is the code of a difficulty."""

    name = "toolworld"
    about = "tasks that seal_ray generates for its toolworld"
    parts = SPLITS
    categories = tuple(map(str, Category))
    endless = True
    takes_difficulty = True

    def tools(self) -> Mapping[str, ToolDoc]:
        """The public documents: those of tasks are shorter forms of these, with the same parameters."""
        return all_tools()

    def public_texts(self) -> Iterator[str]:
        return (text for name, description in DESCRIPTIONS.items() for text in (name, description))

    def owns(self, task_id: str) -> bool:
        return task_id.startswith(PREFIX)

    def task(self, task_id: str) -> Task:
        return task_from_id(task_id)

    def pool(
        self,
        part: str,
        *,
        division: str | None = None,  # noqa: ARG002 - parts are disjoint in one way
        difficulty: str | None = None,
        categories: Sequence[str] | None = None,
    ) -> Pool:
        kinds = tuple(Category(each) for each in (self.categories if categories is None else categories))
        pool = Pool(part, difficulty_of(difficulty), kinds)
        pool.task_id(0)  # a part that there is not is one sentence, here
        return pool

    def split(self, division: str | None = None, *, seed: int = 0) -> Split:  # noqa: ARG002 - there is none
        raise UserError("split: the toolworld generates tasks without end, which cannot be listed.")

    def overlaps(self, split: Split) -> list[Overlap]:  # noqa: ARG002 - as above
        return []


SOURCE = Toolworld()
