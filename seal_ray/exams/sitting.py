"""Asking a model the items of a suite: concurrently, with every item kept as it ends, so that an exam can go on."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from envs.errors import SealError, UserError
from envs.exams import Exam, Item, Mark, Placed
from envs.folders import make_folder
from envs.interleaving import interleaved
from envs.received import read_text
from envs.task import JSON
from envs.text import map_texts, valid_text
from policies.candidate import EngineCandidate
from policies.engine import Engine, EngineDead
from policies.models import ModelFolder
from policies.prompting import ChatFormat
from policies.rollouts import EngineRestarter
from policies.solver import Budgets
from policies.trajectory import derive_seed
from seal_ray.exams.tau2.inspecting import inspect_cache
from seal_ray.report.files import JsonLines, replace_file

PlacedT = TypeVar("PlacedT", bound=Placed)

KEPT = 20_000
"""Characters of an answer that are kept."""


@dataclass(frozen=True, slots=True)
class ModelUnderTest:
    """A model, and how it is asked."""

    model: ModelFolder
    form: ChatFormat
    budgets: Budgets
    engine: str
    dtype: str
    seed: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    concurrent: int = 64

    def settings(self) -> dict[str, Any]:
        """All that its answers depend on, as JSON values."""
        return {
            "model": str(self.model.path.resolve()),
            "model_files": self.model.fingerprint(),
            "dialect": self.model.dialect.name,
            "budgets": asdict(self.budgets),
            "engine": self.engine,
            "dtype": self.dtype,
            "seed": self.seed,
            "temperature": self.temperature,
            "top_p": self.top_p,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """What the counting needs of an item that was asked."""

    item: str
    category: str
    group: str
    counts: bool
    right: bool
    why: str
    end: str
    kept: JSON
    sampled_tokens: int
    prompt_tokens: int

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Answer:
        """Reads what `row_of` wrote."""
        return cls(**{name: row[name] for name in cls.__slots__})


def row_of(item: Item, mark: Mark, candidate: EngineCandidate) -> dict[str, Any]:
    """The line of an item: the judgement, and what was said."""
    ends = [said.end for said in candidate.said]
    row: dict[str, Any] = {
        "item": item.id,
        "category": item.category,
        "group": item.group,
        "counts": item.counts,
        "right": mark.right,
        "why": mark.why,
        "end": next((end for end in ends if end != "stop"), "stop"),
        "kept": mark.kept,
        "sampled_tokens": sum(len(said.token_ids) for said in candidate.said),
        "prompt_tokens": candidate.prompt_tokens,
        "asked": [[role, text[:KEPT]] for role, text in candidate.asked_texts()],
        "said": [said.text[:KEPT] for said in candidate.said],
    }
    texts: dict[str, Any] = map_texts(row, valid_text)
    return texts


class AnswerLog:
    """The answers of one model to one suite, in a folder of their own. Nothing in it changes until it is opened.

    Raises `UserError` where the folder holds those of another model or of other settings; `fresh` throws them away.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, fresh: bool = False) -> None:
        self.lines = JsonLines(folder / "answers.jsonl", ascii=False)
        self.inspect = folder / "inspect"
        """What belongs to Inspect: its logs. Its cache of answers lies with the user's other caches."""
        self._folder = folder
        self._settings = json.dumps(settings, indent=1)
        self.settings_path = folder / "settings.json"
        self._fresh = fresh
        if self.settings_path.exists() and not fresh and read_text(self.settings_path) != self._settings:
            raise UserError(f"--out: {folder} holds another exam; give another folder, or --fresh to replace it.")

    def open(self) -> None:
        """Makes the folder ready for answers."""
        make_folder(self._folder)
        if self._fresh or not self.settings_path.exists():
            self.lines.path.unlink(missing_ok=True)
            for folder in (self.inspect, inspect_cache(self.inspect)):
                shutil.rmtree(folder, ignore_errors=True)
            replace_file(self.settings_path, self._settings.encode())

    def answers(self) -> dict[str, Answer]:
        """The answers so far, by item. Raises `UserError` where the file holds something else."""
        try:
            return {row["item"]: Answer.from_dict(row) for row in self.lines.rows()}
        except KeyError as error:
            raise UserError(f"--out: {self.lines.path} holds a line without {error}; give another folder.") from None


@dataclass
class ExamProgress:
    """How far a suite is. `tokens` are those sampled in this call, over `seconds`."""

    suite: str
    total: int
    answers: dict[str, Answer]
    resumed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    restarts: int = 0


def cut_short(progress: ExamProgress, error: SealError) -> SealError:
    """The error of a suite that cannot go on, with what is kept."""
    return SealError(
        f"{progress.suite}: {str(error).rstrip('.')}; {len(progress.answers)} of {progress.total} items are kept and "
        "no score was written; the same command goes on from there."
    )


@dataclass
class ExamRun:
    """One suite with one model on an engine that runs."""

    exam: Exam
    items: Sequence[Item]
    sitter: ModelUnderTest
    engine: Engine
    sheet: AnswerLog
    report: Callable[[ExamProgress], None]
    _left: dict[str, asyncio.Future[Answer]] = field(default_factory=dict, init=False)

    async def finish(self) -> ExamProgress:
        """Asks what was not yet asked. Raises `SealError` with one sentence where the engine or the world cannot go on.

        What was answered until then is kept.
        """
        stored = self.sheet.answers()
        done = {item.id: stored[item.id] for item in self.items if item.id in stored}
        progress = ExamProgress(self.exam.name, len(self.items), done, resumed=len(done))
        self.report(progress)
        left = [item for item in self.items if item.id not in done]
        patience = EngineRestarter(self.engine, "item")
        slots = asyncio.Semaphore(self.sitter.concurrent)
        started = time.perf_counter()

        async def ask(item: Item) -> None:
            before = None if item.after is None else await self._before(item.after, progress)
            async with slots:
                mark, candidate = await self._ask(item, before, patience)
            patience.worked()
            row = row_of(item, mark, candidate)
            self.sheet.lines.append(row)
            answer = progress.answers[item.id] = Answer.from_dict(row)
            self._left[item.id].set_result(answer)
            progress.tokens += answer.sampled_tokens
            progress.seconds = time.perf_counter() - started
            progress.restarts = patience.restarts
            self.report(progress)

        self._left = {item.id: asyncio.get_running_loop().create_future() for item in left}
        tasks = [asyncio.create_task(ask(item)) for item in left]
        try:
            await asyncio.gather(*tasks)
        except SealError as error:
            raise cut_short(progress, error) from error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return progress

    async def _before(self, item: str, progress: ExamProgress) -> JSON:
        """What the item of that id kept, once it is done."""
        known = progress.answers.get(item)
        answer = known if known is not None else await asyncio.shield(self._left[item])
        return answer.kept

    async def _ask(self, item: Item, before: JSON, patience: EngineRestarter) -> tuple[Mark, EngineCandidate]:
        """Asks one item; where the engine died meanwhile, from its start again with the same seed."""
        while True:
            seen = patience.restarts
            sitter = self.sitter
            candidate = EngineCandidate(
                self.engine,
                sitter.form,
                sitter.budgets,
                seed=derive_seed(sitter.seed, self.exam.name, item.id),
                temperature=sitter.temperature,
                top_p=sitter.top_p,
            )
            try:
                return await item.sit(candidate, before), candidate
            except EngineDead:
                await patience.restart(seen)


def choose_items(
    items: Sequence[PlacedT], *, limit: int | None = None, categories: Sequence[str] = ()
) -> list[PlacedT]:
    """The items that count, the categories in turn, at most `limit`; with each those that it comes after.

    A limit takes groups in an order that is drawn once and for all, so that a few items are of all kinds, and a larger
    limit goes on with more. They are returned in the suite's order.
    """
    by_id = {item.id: item for item in items}
    columns: dict[str, list[PlacedT]] = {}
    for item in sorted(items, key=lambda item: derive_seed(item.group)):
        if item.counts and (not categories or item.category in categories):
            columns.setdefault(item.category, []).append(item)
    chosen: set[str] = set()
    for item in itertools.islice(interleaved(columns.values()), limit):
        needed: PlacedT | None = item
        while needed is not None and needed.id not in chosen:
            chosen.add(needed.id)
            needed = by_id[needed.after] if needed.after is not None else None
    return [item for item in items if item.id in chosen]
