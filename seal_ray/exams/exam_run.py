"""Running an exam: the items of a suite are sent concurrently, and every answer is stored for a resumption."""

import asyncio
import itertools
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from envs.errors import SealError
from envs.exams import Exam, Item, Mark, Placed
from envs.sources import interleaved
from envs.task import JSON
from envs.text import map_texts, valid_text
from policies.candidate import EngineCandidate
from policies.engine import Engine
from policies.models import ModelFolder
from policies.prompting import ChatFormat
from policies.rollouts import EngineRestarter
from policies.solver import Budgets
from policies.trajectory import derive_seed
from seal_ray.evaluation.resumable_log import ResumableLog
from seal_ray.exams.tau2.inspecting import inspect_cache

PlacedT = TypeVar("PlacedT", bound=Placed)

KEPT = 20_000
"""Characters of an answer that are stored."""


@dataclass(frozen=True, slots=True)
class ModelUnderTest:
    """A model and its settings in an exam."""

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
    """The data of an answered item for the counts."""

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
    def from_dict(cls, row: Mapping[str, Any]) -> Self:
        """Reads a line of `answers.jsonl`."""
        return cls(**{name: row[name] for name in cls.__slots__})


def answer_row(item: Item, mark: Mark, candidate: EngineCandidate) -> dict[str, Any]:
    """The line of an item in `answers.jsonl`: the mark and the dialogue."""
    row: dict[str, Any] = {
        "item": item.id,
        "category": item.category,
        "group": item.group,
        "counts": item.counts,
        "right": mark.right,
        "why": mark.why,
        "end": next((said.end for said in candidate.said if said.end != "stop"), "stop"),
        "kept": mark.kept,
        "sampled_tokens": sum(len(said.token_ids) for said in candidate.said),
        "prompt_tokens": candidate.prompt_tokens,
        "asked": [[role, text[:KEPT]] for role, text in candidate.asked_texts()],
        "said": [said.text[:KEPT] for said in candidate.said],
    }
    texts: dict[str, Any] = map_texts(row, valid_text)
    return texts


class AnswerLog(ResumableLog[Answer]):
    """The answers of one model to one suite, by item, in a folder of their own. It is unchanged until it is opened."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], *, fresh: bool = False) -> None:
        path = folder / "answers.jsonl"
        super().__init__(path, settings, lambda row: (row["item"], Answer.from_dict(row)), what="exam", fresh=fresh)
        self.inspect = folder / "inspect"
        """Inspect's logs. Its cache of answers is among the user's caches."""

    def clear(self) -> None:
        super().clear()
        for folder in (self.inspect, inspect_cache(self.inspect)):
            shutil.rmtree(folder, ignore_errors=True)


@dataclass
class ExamProgress:
    """The progress of a suite. `tokens` were sampled in this call, in `seconds`."""

    suite: str
    total: int
    answers: dict[str, Answer]
    resumed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    restarts: int = 0

    def add(self, answer: Answer, started: float) -> None:
        """Counts an answer of a call that started at a time of the performance counter."""
        self.answers[answer.item] = answer
        self.tokens += answer.sampled_tokens
        self.seconds = time.perf_counter() - started

    def cut_short(self, error: SealError) -> SealError:
        """The error of a suite that cannot continue, with the number of stored answers."""
        return SealError(
            f"{self.suite}: {str(error).rstrip('.')}; {len(self.answers)} of {self.total} items are kept and no score "
            "was written; the same command resumes from there."
        )


@dataclass
class ExamRun:
    """One suite with one model on a running engine."""

    exam: Exam
    items: Sequence[Item]
    tested: ModelUnderTest
    engine: Engine
    log: AnswerLog
    report: Callable[[ExamProgress], None]
    _left: dict[str, asyncio.Future[Answer]] = field(default_factory=dict, init=False)

    async def finish(self) -> ExamProgress:
        """Samples the missing answers. Answers are stored as they come.

        Raises `SealError` with one sentence if the engine or the world cannot continue.
        """
        stored = self.log.answers()
        done = {item.id: stored[item.id] for item in self.items if item.id in stored}
        progress = ExamProgress(self.exam.name, len(self.items), done, resumed=len(done))
        self.report(progress)
        left = [item for item in self.items if item.id not in done]
        restarter = EngineRestarter(self.engine, "item")
        slots = asyncio.Semaphore(self.tested.concurrent)
        started = time.perf_counter()

        async def ask(item: Item) -> None:
            before = None if item.after is None else await self._kept(item.after, progress)
            async with slots:
                mark, candidate = await restarter.until_done(lambda: self._ask(item, before))
            answer = self.log.append(answer_row(item, mark, candidate))
            progress.add(answer, started)
            self._left[item.id].set_result(answer)
            progress.restarts = restarter.restarts
            self.report(progress)

        self._left = {item.id: asyncio.get_running_loop().create_future() for item in left}
        tasks = [asyncio.create_task(ask(item)) for item in left]
        try:
            await asyncio.gather(*tasks)
        except SealError as error:
            raise progress.cut_short(error) from error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return progress

    async def _kept(self, item: str, progress: ExamProgress) -> JSON:
        """The data that the item of that id kept, once it is done."""
        known = progress.answers.get(item)
        return (known if known is not None else await asyncio.shield(self._left[item])).kept

    async def _ask(self, item: Item, before: JSON) -> tuple[Mark, EngineCandidate]:
        tested = self.tested
        candidate = EngineCandidate(
            self.engine,
            tested.form,
            tested.budgets,
            seed=derive_seed(tested.seed, self.exam.name, item.id),
            temperature=tested.temperature,
            top_p=tested.top_p,
        )
        return await item.sit(candidate, before), candidate


def choose_items(
    items: Sequence[PlacedT], *, limit: int | None = None, categories: Sequence[str] = ()
) -> list[PlacedT]:
    """At most `limit` items that count, the categories in turn, with their prerequisites, in the suite's order.

    A limit takes groups in a fixed random order, so that a few items are of all kinds, and a larger limit adds more.
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
