"""BFCL V3 as a task source: 800 tasks, divided in several ways, with the files that its official grader reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from envs.bfcl import results, splits
from envs.bfcl.tasks import ID_PREFIX, get_task
from envs.bfcl.tools import all_tools
from envs.sources import Overlap, Played, Split, TaskSource
from envs.task import Category, Task, ToolDoc


class Bfcl(TaskSource):
    """The benchmark; its divisions are those of `get_split`."""

    name = "bfcl"
    about = "multi-turn tasks of BFCL V3"
    categories = tuple(map(str, Category))

    def tools(self) -> Mapping[str, ToolDoc]:
        return all_tools()

    def owns(self, task_id: str) -> bool:
        return task_id.startswith(ID_PREFIX)

    def task(self, task_id: str) -> Task:
        return get_task(task_id)

    def split(self, division: str | None = None, *, seed: int = 0) -> Split:
        return splits.get_split("scenario" if division is None else division, seed=seed)

    def overlaps(self, split: Split) -> list[Overlap]:
        return splits.overlaps(split)

    def write_results(self, folder: Path, played: Sequence[Played], dialect: str) -> str:
        results.write_results(folder, played, dialect)
        return (
            f"bfcl evaluate --model {results.REGISTERED[dialect]} --test-category multi_turn --partial-eval "
            f"--result-dir {folder.resolve()}"
        )


SOURCE = Bfcl()
