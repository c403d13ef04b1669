"""`seal-ray sweep`: settings searched on Ray Tune.

What takes long to import is imported where the command runs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from seal_ray.cli.console import make_console
from seal_ray.cli.options import DryRun, Rounds, Runs, Storage, Trust
from tuning.commands.shared import Standing, check_alone, new_folder, tell_end, tell_missing, teller
from tuning.record import State

if TYPE_CHECKING:
    from tuning.running import OnEvent, TrialEvent
    from tuning.sweep.plan import SweepPlan
    from tuning.sweep.results import Sweep


def command(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="section.key=value …", help="Settings of all trials, for instance training.groups=8."),
    ] = None,
    preset: Annotated[
        list[str] | None, typer.Option(help="A model preset, a method preset, or both, under all trials.")
    ] = None,
    space: Annotated[
        Path | None, typer.Option(help="YAML file of the parameters; reweighting, curator and lr if not given.")
    ] = None,
    scheduler: Annotated[str | None, typer.Option(help="asha (if not given), pbt or none.")] = None,
    search: Annotated[str | None, typer.Option(help="random (if not given), optuna or grid.")] = None,
    trials: Annotated[int | None, typer.Option(help="Points that are tried; 16 if not given.")] = None,
    rounds: Rounds = None,
    seed: Annotated[int | None, typer.Option(help="Repeats a sweep.", min=0)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep; it must not exist.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of that folder in --runs.")] = None,
    runs: Runs = Path("runs"),
    resume: Annotated[
        str | None, typer.Option(help="Sweep to go on with: its folder, or where --storage has put it.")
    ] = None,
    storage: Storage = None,
    report: Annotated[Path | None, typer.Option(help="Folder of a sweep to draw again; nothing is run.")] = None,
    dry_run: DryRun = False,
    _trust: Trust = False,
) -> None:
    """Sweep settings: reweighting, curator, learning rate. Ctrl-C stops; --resume resumes."""
    from tuning.sweep.results import SweepManifest, write_results

    console = make_console()
    new = [overrides or None, preset or None, space, scheduler, search, trials, rounds, seed, out, name]
    check_alone(resume, report, [*new, storage] if report else new)
    if report is not None:
        _show(console, write_results(report))
        return
    from seal_ray.run.cluster import connected
    from seal_ray.run.storage import fetched, mirrored
    from tuning.running import check_resumable, resume_trials
    from tuning.sweep import plan as sweep

    job: Callable[..., None]
    if resume is not None:
        folder, storage = fetched(resume, runs, storage)
        check_resumable(folder, SweepManifest)
        job = partial(resume_trials, folder, SweepManifest)
    else:
        plan = sweep.make_plan(
            presets=preset or [],
            overrides=overrides or [],
            space=space,
            scheduler=scheduler or "asha",
            search=search or "random",
            trials=trials,
            rounds=rounds,
            seed=seed,
        )
        sweep.check_plan(plan, memory=not dry_run)
        if plan.space.left_out:
            console.print(f"without effect here, and left out: {', '.join(plan.space.left_out)}", soft_wrap=True)
        if dry_run:
            _show_plan(console, plan)
            return
        folder = new_folder(out, name, runs, prefix="sweep")
        job = partial(sweep.start, plan, folder)

    say = partial(console.print, soft_wrap=True, markup=False)
    with mirrored(folder, storage, say, new=resume is None) as push:
        say(f"sweep {folder}: connecting to Ray")
        with connected():
            job(tell=_teller(console, folder, push))
        found = write_results(folder)
    _show(console, found)
    tell_end(console, _standing(found), resume=f"seal-ray sweep --resume {folder}")


def _show_plan(console: Console, plan: SweepPlan) -> None:
    table = Table(
        "parameter", "values", title=f"{plan.trials} trials, {plan.rounds} rounds, {plan.scheduler}, {plan.search}"
    )
    for each in plan.space.parameters:
        values = f"{each.low:g} to {each.high:g}" if each.choices is None else ", ".join(map(str, each.choices))
        table.add_row(each.name, values)
    console.print(table)


def _standing(sweep: Sweep) -> Standing:
    return Standing(sweep.trials, sweep.manifest.trials, sweep.manifest.rounds)


def _teller(console: Console, folder: Path, push: Callable[[], None] = lambda: None) -> OnEvent:
    """As for any trials, and the table whenever a trial has ended."""
    from tuning.running import TrialEventKind
    from tuning.sweep.results import collect

    tell_line = teller(console, lambda: _standing(collect(folder)), push=push)

    def tell(event: TrialEvent) -> None:
        tell_line(event)
        if event.happening in (TrialEventKind.ENDED, TrialEventKind.FAILED):
            console.print(_table(collect(folder)))

    return tell


def _table(sweep: Sweep) -> Table:
    """The trials, the best first, each with its settings in one column: a space may have twenty of them."""
    from tuning.sweep.results import score

    parameters = sweep.manifest.parameters
    table = Table("trial", "state", "round", "success %", "settings")
    for trial in sweep.trials:
        found = score(trial)
        # By what a setting is called in its section, so that the lines stay few.
        values = " ".join(f"{each.path[-1]}={_shown(each.value_in(trial.config))}" for each in parameters)
        shown = "–" if found is None else f"{100 * found:.1f}"
        table.add_row(trial.name, trial.state, str(trial.rounds), shown, values)
    return table


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _show(console: Console, sweep: Sweep) -> None:
    from tuning.sweep.results import BEST, IMPORTANCE, PARALLEL, TABLE

    console.print(_table(sweep))
    tell_missing(console, sweep.trials)
    if sweep.best is not None:
        console.print(
            f"best: {sweep.best.name}; train it with: seal-ray train --preset {sweep.folder / BEST}",
            soft_wrap=True,
            markup=False,
        )
    elif any(each.state is State.STOPPED for each in sweep.trials):
        console.print("no trial has come to its end yet, and so there is no best one")
    files = "   ".join(str(sweep.folder / each) for each in (TABLE, PARALLEL, IMPORTANCE))
    console.print(f"results: {files}", soft_wrap=True, markup=False)
