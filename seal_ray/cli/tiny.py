"""`seal-ray tiny`: build the tiny models, and measure their behaviour."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from envs.errors import UserError, check_known
from envs.interface import Interface
from policies import tiny
from policies.engine import Engine
from policies.engine.choice import default_kind, start_engine
from policies.models import ModelFolder, open_model
from policies.prompting import ChatFormat
from policies.rollouts import Rollouts
from policies.solver import Budgets, Solver
from policies.tiny.behaviours import Behaviour
from policies.tiny.measure import Count, Measured, interfaces, measure
from policies.tiny.measure_hidden import measure_hidden
from policies.tiny.measure_writer import AT_ONCE, WriterMeasured, made_up_profiles, measure_writer, played_profiles
from seal_ray.cli.console import make_console, print_line
from seal_ray.cli.options import progress

app = typer.Typer(help="The tiny models, which train in minutes on two cores.", no_args_is_help=True)

_CONTEXT = 4096
_CONCURRENT = 64
_TASKS = 400
_MADE_UP = 19
_PLAYED = 3
_PROPOSALS = 2000


@app.command()
def build(
    out: Annotated[Path | None, typer.Option(help="Folder of the model; runs/NAME by default.")] = None,
    rare: Annotated[bool, typer.Option("--rare", help="Build tiny-rare, from the shipped tiny.")] = False,
    writer: Annotated[bool, typer.Option("--writer", help="Build tiny-writer, from the shipped tiny.")] = False,
    hidden: Annotated[bool, typer.Option("--hidden", help="Build tiny-hidden, from the shipped tiny.")] = False,
    tasks: Annotated[int | None, typer.Option(help="Tasks for the tables of the card; 400 by default.", min=1)] = None,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 2,
) -> None:
    """Build a tiny model: fifty minutes on two cores, six with --rare, thirteen with --writer, fifteen with --hidden.

    After an interrupt, the same command resumes.
    """
    import torch

    from policies.tiny.build import build as build_model
    from policies.tiny.build import write_card, write_hidden_card, write_writer_card
    from policies.tiny.training import HIDDEN_RECIPE, RARE_RECIPE, WRITER_RECIPE, Recipe

    if rare + writer + hidden > 1:
        raise UserError("--rare, --writer and --hidden: they are different models; give one of them.")
    if writer and tasks is not None:
        raise UserError("--tasks: the card of tiny-writer has no tables of tasks; leave it out.")
    name = tiny.RARE if rare else tiny.TASK_WRITER if writer else tiny.HIDDEN if hidden else tiny.NAME
    recipes = {tiny.RARE: RARE_RECIPE, tiny.TASK_WRITER: WRITER_RECIPE, tiny.HIDDEN: HIDDEN_RECIPE}
    recipe = recipes.get(name, Recipe())
    out = out or Path("runs") / name
    torch.set_num_threads(threads)
    console = make_console()
    with progress(console) as update:
        build_model(
            out,
            recipe,
            progress=lambda seen, loss: update("warm start, tokens", seen, recipe.tokens, f"loss {loss:.3f}"),
        )
    if writer:
        written = asyncio.run(_measure_writing(open_model(str(out)), console))
        write_writer_card(out, written)
        _show_writing(console, written)
    elif hidden:
        shares = asyncio.run(_measure_hidden(open_model(str(out)), tasks or _TASKS))
        write_hidden_card(out, shares)
        _show_hidden(console, shares)
    else:
        count = tasks or _TASKS
        sampled, greedy = asyncio.run(_measure(open_model(str(out)), count, console, interfaces()))
        write_card(out, sampled, greedy, tasks=count)
        _show(console, sampled, greedy)
    print_line(console, f"the model and its card are in {out}")


@app.command("measure")
def measure_command(
    model: Annotated[
        str, typer.Option(help="Folder of a tiny base, or a shipped one: tiny, tiny-rare, tiny-writer, tiny-hidden.")
    ] = tiny.NAME,
    tasks: Annotated[int | None, typer.Option(help="Tasks of the dev split; 400 by default.", min=1)] = None,
    interface: Annotated[
        list[str] | None, typer.Option(help="Measure this interface only, for instance plain; can be repeated.")
    ] = None,
    greedy: Annotated[
        bool | None, typer.Option(help="Also measure greedily, for success by category (default).")
    ] = None,
) -> None:
    """Measure how often each behaviour is right, plain and under cues; or what the card of another model shows."""
    from policies.tiny.build import has_hidden_conventions, only_writes

    console = make_console()
    if only_writes(open_model(model).path):
        if (tasks, interface or None, greedy) != (None, None, None):
            raise UserError(f"{model} writes tasks and plays none; leave --tasks, --interface and --greedy out.")
        _show_writing(console, asyncio.run(_measure_writing(open_model(model), console)))
        return
    if has_hidden_conventions(open_model(model).path):
        if (interface or None, greedy) != (None, None):
            raise UserError(f"{model} is measured on interfaces of its own; leave --interface and --greedy out.")
        _show_hidden(console, asyncio.run(_measure_hidden(open_model(model), tasks or _TASKS)))
        return
    known = interfaces()
    check_known("--interface", known, *(interface or []))
    chosen = {name: known[name] for name in known if name in (interface or known)}
    opened, greedily = open_model(model), greedy is not False
    _show(console, *asyncio.run(_measure(opened, tasks or _TASKS, console, chosen, greedy=greedily)))


async def _measure(
    model: ModelFolder, tasks: int, console: Console, chosen: Mapping[str, Interface], *, greedy: bool = True
) -> tuple[dict[str, Measured], dict[str, Measured]]:
    """The measurements at temperature 1 and greedy, by the name of the interface."""
    tables: list[dict[str, Measured]] = [{}, {}]
    temperatures = (1.0, 0.0) if greedy else (1.0,)
    async with _started(model) as (engine, form):
        with progress(console) as update:
            for table, temperature in zip(tables, temperatures, strict=False):
                rollouts = _rollouts(engine, form, temperature)
                for name, interface in chosen.items():
                    done, total = sum(map(len, tables)), len(temperatures) * len(chosen)
                    update("measuring, interfaces", done, total, f"{name}, temperature {temperature:g}")
                    table[name] = await measure(rollouts, interface, tasks=tasks)
    return tables[0], tables[1]


@asynccontextmanager
async def _started(model: ModelFolder) -> AsyncIterator[tuple[Engine, ChatFormat]]:
    """An engine with the model, and its chat format."""
    engine = await start_engine(default_kind(), model, context=_CONTEXT, dtype="float32", concurrent=_CONCURRENT)
    try:
        yield engine, ChatFormat.load(model.path, model.dialect)
    finally:
        await engine.close()


def _rollouts(engine: Engine, form: ChatFormat, temperature: float) -> Rollouts:
    budgets = Budgets(prompt=_CONTEXT, response=256, context=_CONTEXT)
    return Rollouts(Solver(engine, form, budgets, temperature=temperature), concurrent=_CONCURRENT)


def _show(console: Console, sampled: Mapping[str, Measured], greedy: Mapping[str, Measured]) -> None:
    behaviours = Table("interface", title="right decisions, %, with 95 % interval, temperature 1", title_justify="left")
    for behaviour in Behaviour:
        behaviours.add_column(str(behaviour), justify="right")
    for name, measured in sampled.items():
        behaviours.add_row(name, *(str(measured.behaviours[behaviour]) for behaviour in Behaviour))
    console.print(behaviours)
    for title, table in (("temperature 1", sampled), ("greedy", greedy)):
        if not table:
            continue
        success = Table("interface", title=f"success %, {title}", title_justify="left")
        for category in next(iter(table.values())).success:
            success.add_column(category, justify="right")
        for name, measured in table.items():
            success.add_row(name, *(f"{100 * count.share:.1f}" for count in measured.success.values()))
        console.print(success)


async def _measure_hidden(model: ModelFolder, tasks: int) -> dict[str, Count]:
    async with _started(model) as (engine, form):
        return await measure_hidden(engine, form, tasks=tasks, proposals=_PROPOSALS)


def _show_hidden(console: Console, measured: Mapping[str, Count]) -> None:
    table = Table("what", "n", "share", title="%, with 95 % interval, temperature 1", title_justify="left")
    for name, count in measured.items():
        table.add_row(name, str(count.needed), str(count))
    console.print(table)


async def _measure_writing(model: ModelFolder, console: Console) -> dict[str, WriterMeasured]:
    """Its specifications by the source of the failure profiles: made up, or of rollouts of each shipped solver."""
    solvers = (tiny.NAME, tiny.RARE)
    profiles = {"made up": made_up_profiles(_MADE_UP)}
    with progress(console) as update:
        for number, name in enumerate(solvers):
            update("playing for profiles, solvers", number, len(solvers), name)
            async with _started(open_model(name)) as (engine, form):
                played = played_profiles(_rollouts(engine, form, 1.0), _PLAYED)
                profiles[f"of {name}"] = [profile async for profile in played]
        measured: dict[str, WriterMeasured] = {}
        async with _started(model) as (engine, form):
            for name, own in profiles.items():
                update("measuring, kinds of profiles", len(measured), len(profiles), f"{AT_ONCE * len(own)} written")
                measured[name] = await measure_writer(engine, form, own)
    return measured


def _show_writing(console: Console, measured: Mapping[str, WriterMeasured]) -> None:
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
