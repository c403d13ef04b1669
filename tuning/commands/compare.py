"""`seal-ray compare`: arms against each other, each with several seeds, on Ray Tune.

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

from envs.errors import UserError
from seal_ray.cli.console import make_console
from seal_ray.cli.options import DryRun, Rounds, Runs, Storage, Trust
from tuning.commands.shared import Standing, check_alone, new_folder, tell_end, tell_missing, teller

if TYPE_CHECKING:
    from tuning.comparison.collect import Comparison
    from tuning.comparison.plan import ComparisonPlan


def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="section.key=value … | RUN …",
            help="Settings of all arms, for instance training.groups=8; with --merge the folders to join.",
        ),
    ] = None,
    arms: Annotated[str | None, typer.Option(help="Method presets, for instance vanilla,fixed,mine.yaml.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each arm, each with its own seed; 3 if not given.")] = None,
    first_seed: Annotated[int | None, typer.Option(help="The first of the seeds; 0 if not given.", min=0)] = None,
    rounds: Rounds = None,
    preset: Annotated[str | None, typer.Option(help="The model preset under all arms, or a YAML file.")] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The arm that the others are held against; vanilla, or else the first.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Success in % to which rounds and rollouts are counted; the baseline's mean final one if not given.",
            min=0,
            max=100,
        ),
    ] = None,
    start: Annotated[
        Path | None,
        typer.Option(
            help="Comparison (a folder, or .tar.xz) that has evaluated the same model before training; not done again."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the comparison; it must not exist.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of that folder in --runs.")] = None,
    runs: Runs = Path("runs"),
    resume: Annotated[
        str | None, typer.Option(help="Comparison to go on with: its folder, or where --storage has put it.")
    ] = None,
    storage: Storage = None,
    report: Annotated[Path | None, typer.Option(help="Folder of a comparison to draw again; nothing is run.")] = None,
    merge: Annotated[
        bool, typer.Option("--merge", help="Join comparisons that were run in pieces; nothing is run.")
    ] = False,
    dry_run: DryRun = False,
    _trust: Trust = False,
) -> None:
    """Compare methods: arms × seeds, with intervals and paired differences. Ctrl-C stops; --resume resumes."""
    from tuning.comparison.collect import ComparisonManifest, check_unmerged, collect, set_threshold
    from tuning.comparison.report import write_results

    console = make_console()
    share = None if threshold is None else threshold / 100
    of_trials = [arms, seeds, first_seed, rounds, preset, start]
    if merge:
        from tuning.comparison.merge import merge as join

        if any(each is not None for each in (*of_trials, resume, report, storage)):
            raise UserError(
                "--merge: it joins trials as they are; only --baseline, --threshold, --out and --name go with it."
            )
        folder = new_folder(out, name, runs, prefix="compare")
        join([Path(each) for each in words or []], folder, baseline=baseline, threshold=share)
        _show(console, write_results(folder))
        return
    new = [words or None, *of_trials, baseline, out, name]
    check_alone(resume, report, [*new, storage] if report else [*new, threshold])
    if report is not None:
        if share is not None:
            set_threshold(report, share)
        _show(console, write_results(report))
        return
    from seal_ray.run.cluster import connected
    from seal_ray.run.storage import fetched, mirrored
    from tuning.comparison import plan as compare
    from tuning.running import check_resumable, resume_trials

    job: Callable[..., None]
    if resume is not None:
        folder, storage = fetched(resume, runs, storage)
        check_unmerged(folder)
        check_resumable(folder, ComparisonManifest)
        job = partial(resume_trials, folder, ComparisonManifest)
    else:
        plan = compare.make_plan(
            [each.strip() for each in (arms or "").split(",") if each.strip()],
            seeds=3 if seeds is None else seeds,
            first_seed=first_seed or 0,
            rounds=rounds,
            model=preset,
            baseline=baseline,
            threshold=share,
            overrides=words or [],
            like=start,
        )
        compare.check_plan(plan, memory=not dry_run)
        if dry_run:
            show_plan(console, plan)
            return
        folder = new_folder(out, name, runs, prefix="compare")
        job = partial(compare.start, plan, folder)

    say = partial(console.print, soft_wrap=True, markup=False)
    with mirrored(folder, storage, say, new=resume is None) as push:
        say(f"comparison {folder}: connecting to Ray")
        with connected():
            job(tell=teller(console, lambda: _standing(collect(folder)), push=push))
        comparison = write_results(folder)
    _show(console, comparison)
    tell_end(console, _standing(comparison), resume=f"seal-ray compare --resume {folder}")


def show_plan(console: Console, plan: ComparisonPlan) -> None:
    """Shows the arms, the settings that differ between them, and what each trial asks the cluster for."""
    from seal_ray.run.cluster import resources
    from tuning.recipe import differences

    first, *others = plan.arms
    settings = {arm: config.to_sections() for arm, config in plan.arms.items()}
    unlike = sorted({name for arm in others for name, _ in differences(settings[first], settings[arm])})
    table = Table("setting", *plan.arms, title=f"{len(plan.arms)} arms × {len(plan.seeds)} seeds, {plan.rounds} rounds")
    for name in unlike:
        section, _, key = name.partition(".")
        table.add_row(name, *(str(settings[arm][section].get(key, "–")) for arm in plan.arms))
    for kind in ("CPU", "GPU"):
        asked = [sum(each[kind] for each in resources(config.spec).values()) for config in plan.arms.values()]
        table.add_row(f"{kind}s of a trial", *(f"{count:g}" for count in asked))
    console.print(table)


def _standing(comparison: Comparison) -> Standing:
    return Standing(comparison.trials, len(comparison.trials), comparison.manifest.rounds)


def _show(console: Console, comparison: Comparison) -> None:
    from tuning.comparison.report import CURVES, REPORT, short_table

    head, *rows = short_table(comparison)
    table = Table(*head, title=f"{comparison.manifest.rounds} rounds, baseline {comparison.manifest.baseline}")
    for row in rows:
        table.add_row(*(each.replace(" [", "\n[") for each in row))
    console.print(table)
    tell_missing(console, comparison.trials)
    console.print(
        f"report: {comparison.folder / REPORT}   curves: {comparison.folder / CURVES}", soft_wrap=True, markup=False
    )
