"""Playing an evaluation: concurrent dialogues on one engine, each stored as it ends, resumed where it was stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envs.errors import UserError
from envs.sources import get_source
from policies.engine.choice import start_engine
from policies.prompting import ChatFormat
from policies.rollouts import Rollouts
from policies.solver import Solver
from seal_ray.evaluation.plan import Plan
from seal_ray.evaluation.records import Record, Records, groups


@dataclass
class Progress:
    """How far an evaluation is. `tokens` are those sampled in this call, over `seconds`."""

    total: int
    records: list[Record]
    resumed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    restarts: int = 0

    @property
    def success(self) -> float:
        """The running success rate."""
        return sum(record.reward for record in self.records) / max(1, len(self.records))

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / max(self.seconds, 1e-9)


def open_folder(plan: Plan, out: Path, *, fresh: bool = False) -> Records:
    """The folder's records, if they belong to this plan. Raises `UserError` where the folder holds another evaluation.

    `fresh` throws away what is there.
    """
    settings = json.dumps(plan.settings(), indent=1)
    path, dialogues = out / "settings.json", out / "trajectories.jsonl"
    if path.exists() and not fresh:
        if path.read_text(encoding="utf-8") != settings:
            raise UserError(f"--out: {out} holds another evaluation; give another folder, or --fresh to replace it.")
        return Records(dialogues)
    out.mkdir(parents=True, exist_ok=True)
    for old in (dialogues, out / "summary.json"):
        old.unlink(missing_ok=True)
    path.write_text(settings, encoding="utf-8")
    return Records(dialogues)


async def evaluate(
    plan: Plan,
    form: ChatFormat,
    records: Records,
    *,
    report: Callable[[Progress], None],
) -> Progress:
    """Plays what is not yet stored and returns all records. `report` is called at the start and after each dialogue."""
    jobs = plan.jobs()
    wanted = {(job.task.id, job.seed) for job in jobs}
    stored = {(each.task, each.seed): each for each in records.load() if (each.task, each.seed) in wanted}
    left = [job for job in jobs if (job.task.id, job.seed) not in stored]
    progress = Progress(len(jobs), list(stored.values()), resumed=len(stored))
    report(progress)
    if not left:
        return progress
    engine = await start_engine(
        plan.engine, plan.model, context=plan.budgets.context, dtype=plan.dtype, concurrent=plan.concurrent
    )
    try:
        solver = Solver(engine, form, plan.budgets, temperature=plan.temperature, top_p=plan.top_p)
        rollouts = Rollouts(solver, concurrent=plan.concurrent)
        started = time.perf_counter()
        async for _, trajectory in rollouts.play(left):
            record = records.append(trajectory)
            progress.records.append(record)
            progress.tokens += record.sampled_tokens
            progress.seconds = time.perf_counter() - started
            progress.restarts = rollouts.restarts
            report(progress)
    finally:
        await engine.close()
    return progress


def write_summary(plan: Plan, progress: Progress, out: Path) -> None:
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
    (out / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
