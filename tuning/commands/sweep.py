"""`seal-ray sweep`: settings searched on Ray Tune.

Modules that are slow to import are imported in the command.
"""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line
from tuning.commands.shared import Report, check_exclusive, open_folder, print_end, print_missing, run_or_resume
from tuning.record import State

if TYPE_CHECKING:
    from tuning.sweep.plan import SweepPlan
    from tuning.sweep.results import Sweep


Space = Annotated[
    Path | None, typer.Option(help="YAML file of the parameters; reweighting, curator and lr if not given.")
]


def command(
    overrides: opt.Overrides = None,
    preset: opt.Presets = None,
    space: Space = None,
    scheduler: Annotated[str | None, typer.Option(help="asha (if not given), pbt or none.")] = None,
    search: Annotated[str | None, typer.Option(help="random (if not given), optuna or grid.")] = None,
    trials: Annotated[int | None, typer.Option(help="Points that are tried; 16 if not given.")] = None,
    rounds: opt.Rounds = None,
    seed: opt.RunSeed = None,
    name: opt.Name = None,
    runs: opt.Runs = Path("runs"),
    resume: opt.Resume = None,
    storage: opt.Storage = None,
    report: Report = None,
    dry_run: opt.DryRun = False,
    _trust: opt.Trust = False,
) -> None:
    """Sweep settings: reweighting, curator, learning rate. Ctrl-C stops; --resume resumes."""
    from tuning.sweep.results import SweepManifest, collect, write_results

    console = make_console()
    new = [overrides or None, preset or None, space, scheduler, search, trials, rounds, seed, name]
    check_exclusive(resume, report, [*new, storage] if report else new)
    if report is not None:
        print_sweep(console, write_results(report))
        return
    from tuning.sweep.plan import check_plan, make_plan, start

    folder, storage = open_folder(SweepManifest, name, runs, resume, storage)
    starting = None
    if resume is None:
        plan = make_plan(
            presets=preset or [],
            overrides=overrides or [],
            space=space,
            scheduler=scheduler or "asha",
            search=search or "random",
            trials=trials,
            rounds=rounds,
            seed=seed,
        )
        check_plan(plan, weights=not dry_run)
        if plan.space.left_out:
            print_line(console, f"without effect here, and left out: {', '.join(plan.space.left_out)}")
        if dry_run:
            _show_plan(console, plan)
            return
        starting = partial(start, plan)

    def show_table() -> None:
        console.print(trials_table(collect(folder)))

    sweep = run_or_resume(
        console, SweepManifest, starting, folder, storage, read=collect, write=write_results, on_end=show_table
    )
    print_sweep(console, sweep)
    print_end(console, sweep)


def _show_plan(console: Console, plan: "SweepPlan") -> None:
    title = f"{plan.trials} trials, {plan.rounds} rounds, {plan.scheduler}, {plan.search}"
    table = Table("parameter", "values", title=title)
    for parameter in plan.space.parameters:
        choices = parameter.choices
        values = f"{parameter.low:g} to {parameter.high:g}" if choices is None else ", ".join(map(str, choices))
        table.add_row(parameter.name, values)
    console.print(table)


def trials_table(sweep: "Sweep") -> Table:
    """The trials, the best first, with their settings in one column: a space may have twenty of them."""
    from tuning.sweep.results import score

    table = Table("trial", "state", "round", "success %", "settings")
    for trial in sweep.trials:
        values = ((each.path[-1], each.value_in(trial.config)) for each in sweep.manifest.parameters)
        settings = " ".join(
            f"{key}={value:.3g}" if isinstance(value, float) else f"{key}={value}" for key, value in values
        )
        success = score(trial)
        shown = "–" if success is None else f"{100 * success:.1f}"
        table.add_row(trial.name, trial.state, str(trial.rounds), shown, settings)
    return table


def print_sweep(console: Console, sweep: "Sweep") -> None:
    from tuning.sweep.results import BEST, IMPORTANCE, PARALLEL, TABLE

    console.print(trials_table(sweep))
    print_missing(console, sweep.trials)
    if sweep.best is not None:
        print_line(console, f"best: {sweep.best.name}; train it with: seal-ray train --preset {sweep.folder / BEST}")
    elif any(trial.state is State.STOPPED for trial in sweep.trials):
        print_line(console, "no best trial yet: none has finished its rounds")
    print_line(console, f"results: {'   '.join(str(sweep.folder / name) for name in (TABLE, PARALLEL, IMPORTANCE))}")
