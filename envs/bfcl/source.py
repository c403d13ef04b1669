"""BFCL V3's multi-turn tasks as a task source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from envs.bfcl.results import REGISTERED, write_bfcl_results
from envs.bfcl.splits import Split, get_split
from envs.bfcl.tasks import get_task, is_task
from envs.bfcl.tools import all_tools
from envs.errors import UserError
from envs.sources import PARTS, FinitePart, Played, Selection, select_in_turn
from envs.task import Category, Task, ToolDoc

DIVISION = "scenario"
"""The division where none is named."""
_WORDS = {"split: ": "division: ", "split part: ": "part: "}
"""How a split's messages begin, and how a source's do."""


class BfclSource:
    """The 800 tasks, divided by a split: "scenario", "category" (leaky, as published), or a JSON file."""

    about = "multi-turn tasks of BFCL V3"
    parts: Sequence[str] = PARTS
    categories: Sequence[str] = tuple(Category)
    public_texts: Iterable[str] = ()
    takes_difficulty = False

    @property
    def tools(self) -> Mapping[str, ToolDoc]:
        return all_tools()

    def owns(self, task_id: str) -> bool:
        return is_task(task_id)

    def task(self, task_id: str) -> Task:
        return get_task(task_id)

    def divide(self, division: str | None, *, seed: int) -> Split:
        return get_split(division or DIVISION, seed=seed)

    def write_results(self, folder: Path, records: Sequence[Played], dialect: str) -> str:
        write_bfcl_results(folder, records, dialect)
        return (
            f"bfcl evaluate --model {REGISTERED[dialect]} --test-category multi_turn --partial-eval --result-dir "
            f"{folder.resolve()}"
        )

    def select(self, selection: Selection) -> FinitePart:
        if selection.difficulty is not None:
            raise UserError("difficulty: only generated tasks have one; leave it out.")
        with _said_of_a_selection():
            part = get_split(selection.division or DIVISION).part(selection.part)
        return select_in_turn(part, self, selection)


@contextmanager
def _said_of_a_selection() -> Iterator[None]:
    try:
        yield
    except UserError as error:
        text = str(error)
        for split, word in _WORDS.items():
            if text.startswith(split):
                text = word + text.removeprefix(split)
        raise UserError(text) from None


SOURCE = BfclSource()
