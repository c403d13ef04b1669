"""What `seal-ray tiny` does with a model that writes task specifications: it has some written, and counts."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from policies import tiny
from policies.engine import Engine
from policies.engine.choice import default_kind, start_engine
from policies.models import ModelFolder, open_model
from policies.prompting import ChatFormat
from policies.rollouts import Rollouts
from policies.solver import Budgets, Solver
from policies.tiny.measure_writer import AT_ONCE, WriterMeasured, made_up_profiles, measure_writer, played_profiles
from seal_ray.cli.options import progress

_CONTEXT = 4096
_CONCURRENT = 64
_MADE_UP = 19
_PLAYED = 3
_SOLVERS = (tiny.NAME, tiny.RARE)


async def measure_writing(model: ModelFolder, console: Console) -> dict[str, WriterMeasured]:
    """What it writes, by where the failure profiles come from: made up, or of what each shipped solver plays."""
    profiles = {"made up": made_up_profiles(_MADE_UP)}
    with progress(console) as update:
        for number, name in enumerate(_SOLVERS):
            update("playing for profiles, solvers", number, len(_SOLVERS), name)
            solver = open_model(name)
            engine = await _start(solver)
            try:
                form = ChatFormat.load(solver.path, solver.dialect)
                budgets = Budgets(prompt=_CONTEXT, response=256, context=_CONTEXT)
                rollouts = Rollouts(Solver(engine, form, budgets, temperature=1.0), concurrent=_CONCURRENT)
                profiles[f"of {name}"] = [each async for each in played_profiles(rollouts, _PLAYED)]
            finally:
                await engine.close()
        engine = await _start(model)
        found: dict[str, WriterMeasured] = {}
        try:
            form = ChatFormat.load(model.path, model.dialect)
            for name, each in profiles.items():
                update("measuring, kinds of profiles", len(found), len(profiles), f"{AT_ONCE * len(each)} written")
                found[name] = await measure_writer(engine, form, each)
        finally:
            await engine.close()
    return found


async def _start(model: ModelFolder) -> Engine:
    return await start_engine(default_kind(), model, context=_CONTEXT, dtype="float32", concurrent=_CONCURRENT)


def show_writing(console: Console, measured: Mapping[str, WriterMeasured]) -> None:
    """Prints what was measured, and the most frequent reasons why there is no task."""
    table = Table("profiles", title="specifications, %, with 95 % interval, temperature 1", title_justify="left")
    for name in ("written", "read", "task", "different", "categories", "requests"):
        table.add_column(name, justify="right")
    for name, found in measured.items():
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(found.categories.items()))
        depths = ", ".join(f"{depth}: {count}" for depth, count in sorted(found.depths.items()))
        table.add_row(
            *(name, str(found.read.needed), str(found.read), str(found.made), str(found.distinct), kinds, depths)
        )
    console.print(table)
    reasons = [(n, reason) for found in measured.values() for reason, n in found.reasons.items()]
    for count, reason in sorted(reasons, key=lambda each: (-each[0], each[1]))[:5]:
        console.print(f"{count} × {reason}", markup=False)
