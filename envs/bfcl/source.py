"""BFCL V3 as a task source: 800 tasks, their variants, and files for the official grader."""

import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from envs.bfcl import splits
from envs.bfcl.renaming import variant
from envs.bfcl.tasks import ID_PREFIX, get_task, load_tasks
from envs.bfcl.tools import all_tools
from envs.diagnosis import Label
from envs.dialects import get_dialect
from envs.errors import UserError
from envs.folders import make_folder
from envs.sources import Categories, FinitePool, Played, Split, TaskPool, TaskSource, alternating_categories
from envs.task import Category, Task

REGISTERED = {"qwen": "Qwen/Qwen3-8B-FC", "llama3_json": "meta-llama/Llama-3.1-8B-Instruct-FC"}
REGISTERED["toolace"] = "Team-ACE/ToolACE-2-8B"
"""Dialect → the name of a registered model whose official handler reads it."""

_RESULTS = "BFCL_v4_multi_turn_{}_result.json"

RENAMED_PREFIX = "renamed_"
"""Prefix of a variant's id; the task's id follows, and the two numbers that seed its names."""
_RENAMED_ID = re.compile(rf"{RENAMED_PREFIX}({ID_PREFIX}[a-z_]+_[0-9]+)_([0-9]{{1,9}}_[0-9]{{1,9}})")


class Bfcl(TaskSource):
    """The benchmark; `get_split` has its divisions."""

    name = "bfcl"
    about = "multi-turn tasks of BFCL V3"
    categories = tuple(map(str, Category))

    tools = staticmethod(all_tools)
    task = staticmethod(get_task)
    overlaps = staticmethod(splits.overlaps)

    def owns(self, task_id: str) -> bool:
        return task_id.startswith(ID_PREFIX)

    def split(self, split_scheme: str | None = None, *, seed: int = 0) -> Split:
        return splits.get_split("scenario" if split_scheme is None else split_scheme, seed=seed)

    def grades(self, task_id: str) -> bool:
        return task_id in load_tasks()

    def write_results(self, folder: Path, played: Sequence[Played], dialect: str) -> str:
        """Writes `FOLDER/NAME/multi_turn/BFCL_v4_multi_turn_CATEGORY_result.json`, which the returned command grades.

        A turn that was cut off is left out, which the official grader counts as a failure. All earlier files of the
        same NAME are removed. Raises `UserError` for several dialogues of one task.
        """
        if len({each.task for each in played}) < len(played):
            raise UserError("--official-results: the official files hold one dialogue a task; give --seeds 1.")
        where = folder / REGISTERED[dialect].replace("/", "_") / "multi_turn"
        make_folder(where, "--official-results")
        for old in where.glob(_RESULTS.format("*")):
            old.unlink()
        rows: dict[str, list[str]] = {}
        for each in sorted(played, key=lambda each: each.task):
            reached = sum(label != Label.NOT_REACHED for label in each.labels)
            said = [list(map(get_dialect(dialect).spoken, steps)) for steps in each.completions[:reached]]
            rows.setdefault(each.category, []).append(json.dumps({"id": each.task, "result": said}) + "\n")
        for category, lines in rows.items():
            (where / _RESULTS.format(category)).write_text("".join(lines), encoding="utf-8")
        return (
            f"bfcl evaluate --model {REGISTERED[dialect]} --test-category multi_turn --partial-eval "
            f"--result-dir {folder.resolve()}"
        )


@dataclass(frozen=True, slots=True)
class RenamedPool:
    """Variants of training tasks without end: all tasks in turn, then all again under other names.

    It also holds the tasks themselves: a model that has learnt the variants has learnt their story.
    """

    originals: FinitePool
    size: int | None = None

    def task_id(self, number: int, seed: int = 0) -> str:
        again, place = divmod(number, self.originals.size)
        return f"{RENAMED_PREFIX}{self.originals.task_id(place)}_{seed}_{again}"

    def category(self, number: int) -> str:
        return self.originals.category(number % self.originals.size)

    def holds(self, task_id: str) -> bool:
        match = _RENAMED_ID.fullmatch(task_id)
        return self.originals.holds(match[1] if match else task_id)


@cache
def _stories() -> tuple[Task, ...]:
    """The training tasks with their scenarios shuffled; the original order is by simulator."""
    return tuple(sorted(SOURCE.split().train, key=lambda task: random.Random(f"renamed {task.scenario}").random()))


class Renamed(Bfcl):
    """The benchmark with endless variants of its training tasks; dev and test are unchanged."""

    name = "bfcl-renamed"
    about = "multi-turn tasks of BFCL V3, those to train on under other names"

    def owns(self, task_id: str) -> bool:
        return task_id.startswith(RENAMED_PREFIX)

    def task(self, task_id: str) -> Task:
        match = _RENAMED_ID.fullmatch(task_id)
        if match is None:
            return super().task(task_id)
        task = super().task(match[1])
        if task not in _stories():
            raise UserError(f"task: {task.id} is not to train on, and has no variants.")
        return variant(task, match[2], name=task_id)

    def pool(
        self,
        part: str,
        *,
        split_scheme: str | None = None,
        difficulty: str | None = None,
        categories: Categories = None,
    ) -> TaskPool:
        if part != "train":
            return super().pool(part, split_scheme=split_scheme, difficulty=difficulty, categories=categories)
        if split_scheme is not None:
            raise UserError(
                f"split: {split_scheme!r:.80} is given; {self.name} has the default split_scheme, leave it out."
            )
        kinds = self.categories if categories is None else categories
        return RenamedPool(FinitePool(tuple(alternating_categories(_stories(), kinds))))


SOURCE = Bfcl()
RENAMED = Renamed()
