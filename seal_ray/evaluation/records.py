"""Playing an evaluation: concurrent dialogues on one engine, stored as they end, so that it can be resumed.

The counts are success by category with intervals, label shares, and the ends of dialogues.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from rich.table import Table

from envs.diagnosis import Label
from envs.errors import UserError
from envs.sources import get_source
from envs.task import sorted_categories
from policies.engine.choice import start_engine
from policies.prompting import ChatFormat
from policies.rollouts import Rollouts
from policies.solver import Solver
from seal_ray.evaluation.resumable_log import ResumableLog
from seal_ray.evaluation.suites import EvaluationPlan
from seal_ray.report.dialogues import dialogue_sample
from seal_ray.report.files import replace_file
from seal_ray.report.inspect_log import SUCCESS, write_log
from seal_ray.statistics import Interval, wilson

_SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True)
class Record:
    """The data of a dialogue for the counts. `completions` has the solver's texts by turn and step."""

    task: str
    category: str
    seed: int
    reward: float
    end: str
    labels: tuple[str, ...]
    sampled_tokens: int
    prompt_tokens: int
    completions: tuple[tuple[str, ...], ...]

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Self:
        """Reads the JSON values of `Trajectory.to_dict`."""
        return cls(
            task=row["task"],
            category=row["category"],
            seed=row["seed"],
            reward=row["reward"],
            end=row["end"],
            labels=tuple(turn["label"] for turn in row["turns"]),
            sampled_tokens=sum(row["mask"]),
            prompt_tokens=len(row["mask"]) - sum(row["mask"]),
            completions=tuple(tuple(step["completion"] for step in turn["steps"]) for turn in row["turns"]),
        )


def success_interval(records: Sequence[Record]) -> Interval:
    """The success rate with Wilson's interval over tasks.

    A task is one observation with several seeds too, since its dialogues are not independent: exact for one seed, and
    conservative for more.
    """
    share = sum(record.reward for record in records) / max(1, len(records))
    return wilson(share, len({record.task for record in records}))


@dataclass(frozen=True, slots=True)
class SuccessGroup:
    """The counts of one category, or of all. `labels` counts turns, `ends` dialogues."""

    name: str
    tasks: int
    dialogues: int
    success: Interval
    labels: Counter[str]
    ends: Counter[str]

    @classmethod
    def counted(cls, name: str, records: Sequence[Record]) -> Self:
        return cls(
            name,
            len({record.task for record in records}),
            len(records),
            success_interval(records),
            Counter(label for record in records for label in record.labels),
            Counter(record.end for record in records),
        )

    @property
    def turns_done(self) -> float:
        """The share of turns that passed, or correctly called nothing."""
        return sum(self.labels[label] for label in Label if label.is_done) / max(1, self.labels.total())

    def to_dict(self) -> dict[str, Any]:
        turns = self.labels.total()
        return {
            "tasks": self.tasks,
            "dialogues": self.dialogues,
            "success": self.success.share,
            "interval_95": [self.success.low, self.success.high],
            "turns_done": self.turns_done,
            "label_shares": {label: count / turns for label, count in sorted(self.labels.items())},
            "ends": dict(sorted(self.ends.items())),
        }


def groups(records: Sequence[Record], categories: Sequence[str] = ()) -> list[SuccessGroup]:
    """A group for each category that occurs, in the order of `categories`, and one for all at the end."""
    by_category: dict[str, list[Record]] = {}
    for record in records:
        by_category.setdefault(record.category, []).append(record)
    occurring = [category for category in sorted_categories([*categories, *by_category]) if category in by_category]
    return [
        *(SuccessGroup.counted(category, by_category[category]) for category in occurring),
        SuccessGroup.counted("all", records),
    ]


def success_table(counted: Sequence[SuccessGroup], title: str) -> Table:
    table = Table("category", title=title, title_justify="left")
    for name in ("tasks", "dialogues", "success %", "95 % interval", "turns done %"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in counted:
        success = f"{100 * group.success.share:.1f}"
        cells = (str(group.tasks), str(group.dialogues), success, str(group.success), f"{100 * group.turns_done:.1f}")
        table.add_row(group.name, *cells, style="bold" if group.name == "all" else "")
    return table


def label_table(counted: Sequence[SuccessGroup]) -> Table:
    """Label shares by category, in percent of the turns."""
    table = Table("label", title="labels, % of turns", title_justify="left")
    for group in counted:
        table.add_column(group.name, justify="right", no_wrap=True)
    for label in Label:
        if counted[-1].labels[label]:
            cells = (f"{100 * group.labels[label] / group.labels.total():.1f}" for group in counted)
            table.add_row(str(label), *cells)
    return table


@dataclass
class EvaluationProgress:
    """The progress of an evaluation. `tokens` were sampled in this call, in `seconds`."""

    total: int
    records: list[Record]
    resumed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    restarts: int = 0

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


def open_folder(plan: EvaluationPlan, out: Path, *, fresh: bool = False) -> ResumableLog[Record]:
    """The folder's log of dialogues; `fresh` throws away an earlier one.

    Raises `UserError` if the folder holds another evaluation.
    """
    dialogues, summary = out / "trajectories.jsonl", out / _SUMMARY

    def keyed(row: dict[str, Any]) -> tuple[tuple[str, int], Record]:
        return (row["task"], row["seed"]), Record.from_dict(row)

    log = ResumableLog(dialogues, plan.settings(), keyed, what="evaluation", fresh=fresh)
    if not fresh and not log.is_begun:
        for old in (dialogues, summary):
            if old.exists():
                raise UserError(f"--out: {old} is of something else; give another folder, or --fresh to replace it.")
    if fresh:
        summary.unlink(missing_ok=True)
    log.open()
    return log


async def evaluate(
    plan: EvaluationPlan,
    form: ChatFormat,
    records: ResumableLog[Record],
    *,
    report: Callable[[EvaluationProgress], None],
) -> EvaluationProgress:
    """Plays the dialogues that are not stored yet. `report` is called at the start and after each dialogue."""
    jobs = plan.jobs()
    wanted = {(job.task.id, job.seed) for job in jobs}
    stored = {key: record for key, record in records.answers().items() if key in wanted}
    left = [job for job in jobs if (job.task.id, job.seed) not in stored]
    progress = EvaluationProgress(len(jobs), list(stored.values()), resumed=len(stored))
    report(progress)
    if not left:
        return progress
    concurrent = min(plan.concurrent, len(left))  # a cache for more would be useless
    engine = await start_engine(
        *(plan.engine, plan.model),
        context=plan.budgets.context,
        dtype=plan.dtype,
        concurrent=concurrent,
        threads=plan.threads,
        gpu_memory_share=plan.gpu_memory_share,
    )
    try:
        solver = Solver(engine, form, plan.budgets, temperature=plan.temperature, top_p=plan.top_p)
        rollouts = Rollouts(solver, concurrent=concurrent)
        started = time.perf_counter()
        async for _, trajectory in rollouts.play(left):
            record = records.append(trajectory.to_dict())
            progress.records.append(record)
            progress.tokens += record.sampled_tokens
            progress.seconds = time.perf_counter() - started
            progress.restarts = rollouts.restarts
            report(progress)
    finally:
        await engine.close()
    return progress


def write_summary(plan: EvaluationPlan, progress: EvaluationProgress, out: Path) -> None:
    """Writes `summary.json`: settings, counts by category, and this call's speed."""
    summary = {
        "settings": plan.settings(),
        "results": {
            group.name: group.to_dict() for group in groups(progress.records, get_source(plan.environment).categories)
        },
        "sampled_tokens": sum(record.sampled_tokens for record in progress.records),
        "prompt_tokens": sum(record.prompt_tokens for record in progress.records),
        "last_call": {
            "dialogues": len(progress.records) - progress.resumed,
            "sampled_tokens": progress.tokens,
            "seconds": round(progress.seconds, 3),
            "engine_restarts": progress.restarts,
        },
    }
    replace_file(out / _SUMMARY, json.dumps(summary, indent=1).encode())


def write_evaluation_log(plan: EvaluationPlan, records: ResumableLog[Record], out: Path, *, model: str) -> None:
    """Writes the stored dialogues as a log of Inspect's."""
    tasks = {task.id: task for task in plan.tasks}
    path = out / "logs" / "evaluation.eval"
    path.parent.mkdir(exist_ok=True)
    write_log(
        path,
        ((dialogue_sample(row, tasks.get(row["task"]), model=model), None) for row in records.rows()),
        task=f"{plan.environment} {plan.split}",
        model=model,
        scorer=SUCCESS,
        metadata={"settings": plan.settings()},
    )
