"""`seal-ray compare`: arms against each other, each with several seeds, on Ray Tune.

What takes long to import is imported where the command runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from envs.errors import SealError, UserError
from seal_ray.cli.train import minutes, percent

if TYPE_CHECKING:
    from tuning.collect import Comparison
    from tuning.compare import Event, Tell


def command(
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="section.key=value …", help="Settings of all arms, for instance training.groups=8."),
    ] = None,
    arms: Annotated[str | None, typer.Option(help="Method presets, for instance vanilla,fixed,rules.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each arm, with the seeds 0, 1, …; 3 if not given.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of each run, instead of the preset's.")] = None,
    preset: Annotated[str | None, typer.Option(help="The model preset under all arms.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The arm that the others are held against; vanilla, or else the first.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the comparison; it must not exist.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of that folder in --runs.")] = None,
    runs: Annotated[
        Path, typer.Option(envvar="SEAL_RAY_RUNS", help="Folder that holds the runs; a shared one on a cluster.")
    ] = Path("runs"),
    resume: Annotated[Path | None, typer.Option(help="Folder of a comparison to go on with.")] = None,
    report: Annotated[Path | None, typer.Option(help="Folder of a comparison to draw again; nothing is run.")] = None,
) -> None:
    """Compare curators: arms × seeds, with intervals and paired differences. Ctrl-C stops; --resume goes on."""
    from tuning.report import write_results

    console = Console(highlight=False)
    new = [overrides or None, arms, seeds, rounds, preset, baseline, out, name]
    if (resume or report) and (any(each is not None for each in new) or (resume and report)):
        option = "--resume" if resume else "--report"
        raise UserError(f"{option}: a comparison goes on with its own settings; give no others.")
    if report is not None:
        _show(console, write_results(report))
        return
    from tuning import compare

    job: Callable[..., None]
    if resume is not None:
        compare.check_resumable(resume)
        folder, job = resume, partial(compare.resume, resume)
    else:
        if out is not None and name is not None:
            raise UserError("--out: it is the folder, and --name that in --runs; give one of them.")
        folder = out or runs / (name or time.strftime("compare-%Y%m%d-%H%M%S"))
        if folder.exists():
            raise UserError(f"{folder} exists; go on with --resume {folder}, or give another folder.")
        plan = compare.make_plan(
            [each.strip() for each in (arms or "").split(",") if each.strip()],
            seeds=3 if seeds is None else seeds,
            rounds=rounds,
            model=preset,
            baseline=baseline,
            overrides=overrides or [],
        )
        compare.check_plan(plan)
        job = partial(compare.start, plan, folder)
    from seal_ray.run.cluster import connected

    console.print(f"comparison {folder}: connecting to Ray", soft_wrap=True)
    with connected():
        job(tell=_teller(console, folder))
    comparison = write_results(folder)
    _show(console, comparison)
    _end(comparison, console)


def _teller(console: Console, folder: Path) -> Tell:
    """What tells the events of a comparison: a line for each, and the time left beside each round."""
    from tuning.collect import State, collect
    from tuning.compare import Happening

    begun = time.monotonic()
    played = 0

    def tell(event: Event) -> None:
        nonlocal played
        at = event.trial
        match event.happening:
            case Happening.STARTED:
                text = f"{at}: started"
            case Happening.ROUND:
                played += 1
                text = f"{at} {_round(event)}; {time_left()}"
            case Happening.RETRIED:
                text = f"{at}: failed ({event.error}); it goes on from its last checkpoint"
            case Happening.FAILED:
                text = f"{at}: failed and given up ({event.error})"
            case Happening.FINISHED:
                text = f"{at}: finished"
            case Happening.STOPPING:
                text = "stopping after the rounds under way; interrupt again to stop at once"
        console.print(text, soft_wrap=True, markup=False)

    def time_left() -> str:
        comparison = collect(folder)
        done = sum(each.state in (State.FINISHED, State.FAILED) for each in comparison.trials)
        missing = sum(
            comparison.manifest.rounds - each.rounds for each in comparison.trials if each.state is not State.FAILED
        )
        left = missing * (time.monotonic() - begun) / played
        return f"{done} of {len(comparison.trials)} trials done, {minutes(left)} left"

    return tell


def _round(event: Event) -> str:
    metrics = event.metrics
    parts = [
        f"round {metrics['round']:.0f}: success {percent(metrics, 'solver/success')} "
        f"(plain {percent(metrics, 'solver/success_plain')}, shown {percent(metrics, 'solver/success_shown')})"
    ]
    if "perf/evaluation_seconds" in metrics:
        parts.append(f"evaluation {percent(metrics, 'evaluation/success')}")
    return f"{', '.join(parts)}; {metrics['perf/round_seconds']:.0f} s"


def _show(console: Console, comparison: Comparison) -> None:
    from tuning.collect import State
    from tuning.report import CURVES, REPORT, short_table

    head, *rows = short_table(comparison)
    table = Table(*head, title=f"{comparison.manifest.rounds} rounds, baseline {comparison.manifest.baseline}")
    for row in rows:
        table.add_row(*(each.replace(" [", "\n\\[") for each in row))
    console.print(table)
    for trial in comparison.trials:
        if trial.state is not State.FINISHED:
            reason = f": {trial.failure}" if trial.failure else ""
            text = f"{trial.name} is in no number: {trial.state} after {trial.rounds} rounds{reason}"
            console.print(text, soft_wrap=True, markup=False)
    console.print(f"report: {comparison.folder / REPORT}   curves: {comparison.folder / CURVES}", soft_wrap=True)


def _end(comparison: Comparison, console: Console) -> None:
    from tuning.collect import State

    states = [each.state for each in comparison.trials]
    if State.UNFINISHED in states or State.NOT_STARTED in states:
        console.print(f"stopped; go on with: seal-ray compare --resume {comparison.folder}", soft_wrap=True)
    failed = [each.name for each in comparison.trials if each.state is State.FAILED]
    if failed:
        raise SealError(
            f"{len(failed)} of {len(states)} trials were given up ({', '.join(failed)}); "
            f"seal-ray compare --resume {comparison.folder} starts them again."
        )
