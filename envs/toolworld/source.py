"""The toolworld as a task source: parts without end."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from envs.bfcl.tools import all_tools
from envs.errors import UserError, unknown_value
from envs.sources import EVALUATED, Division, Part, Selection, chosen_categories
from envs.task import Category, Task, ToolDoc
from envs.toolworld.difficulty import Difficulty, difficulty_of
from envs.toolworld.documents import DESCRIPTIONS
from envs.toolworld.generation import PREFIX, generate, task_from_id, task_name
from envs.toolworld.words import SPLITS


@dataclass(frozen=True)
class GeneratedPart:
    """The tasks of a part, generated from their numbers."""

    split: str
    categories: tuple[Category, ...]
    difficulty: Difficulty

    @property
    def size(self) -> int | None:
        return None

    def task_id(self, number: int) -> str:
        category = self.categories[number % len(self.categories)]
        return task_name(number, split=self.split, category=category, difficulty=self.difficulty)

    def tasks(self, limit: int | None) -> tuple[Task, ...]:
        every = list(Category)
        seeds = (seed for seed in itertools.count() if every[seed % len(every)] in self.categories)
        count = EVALUATED if limit is None else limit
        return tuple(
            generate(seed, split=self.split, difficulty=self.difficulty) for seed in itertools.islice(seeds, count)
        )

    def has(self, task_id: str) -> bool:
        return task_id.startswith(f"{PREFIX}{self.split}_")

    def overlap(self, other: Part) -> str | None:
        """Parts of different names share nothing, by construction; see `envs/toolworld/words.py`."""
        same = isinstance(other, GeneratedPart) and other.split == self.split
        return f"{self.split!r} is the part that is trained on; evaluation must not play it" if same else None


class ToolworldSource:
    """Generated tasks without end, in three parts that share no names, texts or calls."""

    about = "tasks that seal_ray generates for its toolworld"
    parts: Sequence[str] = SPLITS
    categories: Sequence[str] = tuple(Category)
    takes_difficulty = True

    @property
    def tools(self) -> Mapping[str, ToolDoc]:
        return all_tools()

    @property
    def public_texts(self) -> Iterable[str]:
        """The descriptions that the toolworld shows in place of the published ones."""
        return [text for pair in DESCRIPTIONS.items() for text in pair]

    def owns(self, task_id: str) -> bool:
        return task_id.startswith(PREFIX)

    def task(self, task_id: str) -> Task:
        return task_from_id(task_id)

    def divide(self, division: str | None, *, seed: int) -> Division:
        del division, seed
        raise UserError("env: the tasks of the toolworld have no end, so that they are not listed; name another.")

    def select(self, selection: Selection) -> GeneratedPart:
        if selection.division is not None:
            raise unknown_value("division", selection.division, ())
        if selection.part not in SPLITS:
            raise unknown_value("part", selection.part, SPLITS)
        categories = tuple(Category(name) for name in chosen_categories(self, selection))
        return GeneratedPart(selection.part, categories, difficulty_of(selection.difficulty))


SOURCE = ToolworldSource()
