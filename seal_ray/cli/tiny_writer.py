"""Measuring tiny-writer in `seal-ray tiny`: the share of its specifications that make tasks."""

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
    """Its specifications by the source of the failure profiles: made up, or of rollouts of each shipped solver."""
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
                profiles[f"of {name}"] = [profile async for profile in played_profiles(rollouts, _PLAYED)]
            finally:
                await engine.close()
        engine = await _start(model)
        measured: dict[str, WriterMeasured] = {}
        try:
            form = ChatFormat.load(model.path, model.dialect)
            for name, own in profiles.items():
                update("measuring, kinds of profiles", len(measured), len(profiles), f"{AT_ONCE * len(own)} written")
                measured[name] = await measure_writer(engine, form, own)
        finally:
            await engine.close()
    return measured


async def _start(model: ModelFolder) -> Engine:
    return await start_engine(default_kind(), model, context=_CONTEXT, dtype="float32", concurrent=_CONCURRENT)


def show_writing(console: Console, measured: Mapping[str, WriterMeasured]) -> None:
    """Prints the measurements, and the most frequent reasons for rejection."""
    table = Table("profiles", title="specifications, %, with 95 % interval, temperature 1", title_justify="left")
    for name in ("written", "read", "task", "different", "categories", "requests"):
        table.add_column(name, justify="right")
    for name, own in measured.items():
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(own.categories.items()))
        depths = ", ".join(f"{depth}: {count}" for depth, count in sorted(own.depths.items()))
        table.add_row(name, *map(str, (own.read.needed, own.read, own.made, own.distinct)), kinds, depths)
    console.print(table)
    reasons = [(-count, reason) for own in measured.values() for reason, count in own.reasons.items()]
    for count, reason in sorted(reasons)[:5]:
        console.print(f"{-count} × {reason}", markup=False)
