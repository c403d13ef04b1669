"""`seal-ray compare`: arms, each with several seeds, on Ray Tune.

Modules that are slow to import are imported in the command.
"""

import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from envs.errors import UserError
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line
from tuning.commands.shared import Report, check_exclusive, open_folder, print_end, print_missing, run_or_resume

if TYPE_CHECKING:
    from tuning.comparison.collect import Comparison
    from tuning.comparison.plan import ComparisonPlan


Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="section.key=value … | RUN …",
        help="Settings of all arms, for instance training.groups=8; with --merge the folders to join.",
    ),
]
Baseline = Annotated[
    str | None, typer.Option(help="The arm that others are compared with; vanilla, or else the first.")
]
Threshold = Annotated[
    float | None,
    typer.Option(help="Success in % to which time is measured; by default the baseline's mean final.", min=0, max=100),
]
Start = Annotated[
    Path | None, typer.Option(help="Comparison (a folder, or .tar.xz) whose evaluations before training are reused.")
]
Match = Annotated[
    str | None,
    typer.Option(help="Compare arms at equal rollouts, the default, or at equal sampled tokens: rollouts or tokens."),
]
Arms = Annotated[str | None, typer.Option(help="Method presets, for instance vanilla,fixed,mine.yaml.")]
Seeds = Annotated[int | None, typer.Option(help="Runs of each arm, each with its own seed; 3 if not given.")]
FirstSeed = Annotated[int | None, typer.Option(help="The first of the seeds; 0 if not given.", min=0)]
Preset = Annotated[str | None, typer.Option(help="The model preset under all arms, or a YAML file.")]
Preregistered = Annotated[
    Path | None,
    typer.Option(help="File of seal-ray preregister to run, or a part by --arms, --seeds and --first-seed."),
]
Merge = Annotated[bool, typer.Option("--merge", help="Join comparisons that were run in pieces; nothing is run.")]


def command(
    words: Words = None,
    arms: Arms = None,
    seeds: Seeds = None,
    first_seed: FirstSeed = None,
    rounds: opt.Rounds = None,
    preset: Preset = None,
    baseline: Baseline = None,
    threshold: Threshold = None,
    match: Match = None,
    preregistered: Preregistered = None,
    start: Start = None,
    name: opt.Name = None,
    runs: opt.Runs = Path("runs"),
    resume: opt.Resume = None,
    storage: opt.Storage = None,
    report: Report = None,
    merge: Merge = False,
    dry_run: opt.DryRun = False,
    _trust: opt.Trust = False,
) -> None:
    """Compare methods: arms × seeds, with intervals and paired differences. Ctrl-C stops; --resume resumes."""
    from tuning.comparison.collect import ComparisonManifest, checked_match, set_reading
    from tuning.comparison.preregistration import check_fixed, preregistration_of
    from tuning.comparison.report import write_results

    console, share, match = make_console(), None if threshold is None else threshold / 100, checked_match(match)
    trial_options = [arms, seeds, first_seed, rounds, preset, preregistered, start]
    if merge:
        from tuning.comparison.merge import merge as merge_pieces

        if any(value is not None for value in (*trial_options, resume, report, storage)):
            raise UserError("--merge: it joins finished trials; leave out options of runs.")
        folder, _ = open_folder(ComparisonManifest, name, runs)
        merge_pieces(list(map(Path, words or [])), folder, baseline=baseline, threshold=share, match=match)
        print_comparison(console, write_results(folder))
        return
    new = [words or None, *trial_options, baseline, name]
    check_exclusive(resume, report, [*new, storage] if report else [*new, threshold, match])
    if report is not None:
        check_fixed(preregistration_of(report), threshold, match)
        set_reading(report, threshold=share, match=match)
        print_comparison(console, write_results(report))
        return
    folder, storage = open_folder(ComparisonManifest, name, runs, resume, storage)
    plan = None
    if resume is None:
        from tuning.comparison.plan import make_plan, preregistered_plan

        part: dict[str, Any] = {"seeds": seeds, "first_seed": first_seed, "overrides": words or [], "like": start}
        fixed: dict[str, Any] = {"rounds": rounds, "model": preset, "baseline": baseline}
        fixed |= {"threshold": share, "match": match}
        if preregistered is None:
            plan = make_plan(_listed(arms), **part, **fixed)
        elif any(value is not None for value in fixed.values()):
            raise UserError("--preregistered: the file has rounds, presets, baseline, threshold and match.")
        else:
            plan = preregistered_plan(preregistered, _listed(arms), **part)
    run_comparison(console, plan, folder, storage, dry_run=dry_run)


def _listed(text: str | None) -> list[str]:
    return [each.strip() for each in (text or "").split(",") if each.strip()]


def preregister(
    out: Annotated[Path, typer.Option(help="The new file, of JSON.")],
    words: Words = None,
    arms: Arms = None,
    seeds: Seeds = None,
    first_seed: FirstSeed = None,
    rounds: opt.Rounds = None,
    preset: Preset = None,
    baseline: Baseline = None,
    threshold: Threshold = None,
    match: Match = None,
    measures: Annotated[str, typer.Option(help="The measures to test, the primary one first.")] = "final",
    _trust: opt.Trust = False,
) -> None:
    """Freeze a comparison before its runs: arms with all settings, seeds, measures and tests, with a hash."""
    from seal_ray.statistics import remark
    from tuning.comparison.collect import checked_match
    from tuning.comparison.plan import check_plan, make_plan

    if out.exists():
        raise UserError(f"--out: {out} exists; a preregistration is never replaced.")
    plan = make_plan(
        _listed(arms),
        seeds=seeds,
        first_seed=first_seed,
        rounds=rounds,
        model=preset,
        baseline=baseline,
        threshold=None if threshold is None else threshold / 100,
        match=checked_match(match),
        overrides=words or [],
    )
    check_plan(plan, weights=False)
    frozen = plan.preregistration(_listed(measures))
    frozen.save(out)
    if few := remark(len(plan.seeds)):
        print_line(make_console(), few)
    print_line(make_console(), f"SHA-256 {frozen.sha256}; run it with: seal-ray compare --preregistered {out}")


_DEMO = ("evaluation.interval=5", "curator.engine=vllm", "engine.threads=2")
_DEMO_ON_GPU = ("engine.num_gpus_per_engine=0.25", "engine.gpu_memory_share=0.2")
"""Shares of one GPU for the engines of two agents of two runs."""


def demo(
    words: opt.Overrides = None, rounds: opt.Rounds = 15, name: opt.Name = None, runs: opt.Runs = Path("runs")
) -> None:
    """Train a small model with a curator and without one, for some minutes each, and write a page with both."""
    import torch

    from tuning.comparison.page import PAGE

    settings = [*_DEMO, *(_DEMO_ON_GPU if torch.cuda.is_available() else ()), *(words or [])]
    name = name or time.strftime("demo-%Y%m%d-%H%M%S")
    arms = "vanilla,coevolved-varied"
    command(settings, arms=arms, seeds=1, rounds=rounds, preset="tiny-rare", name=name, runs=runs)
    print_line(
        make_console(),
        f"open {runs / name / PAGE} in a browser: look at the curves of both arms, and on the page of the curator's "
        "run at what it proposed and which tasks changed.",
    )


def run_comparison(
    console: Console, plan: "ComparisonPlan | None", folder: Path, storage: str | None = None, *, dry_run: bool = False
) -> "Comparison | None":
    """Runs a plan, or without one resumes the folder. A dry run shows the plan and returns None."""
    from tuning.comparison.collect import ComparisonManifest, collect
    from tuning.comparison.plan import check_plan, start
    from tuning.comparison.report import write_results

    if plan is not None:
        check_plan(plan, weights=not dry_run)
        if dry_run:
            _show_plan(console, plan)
            return None
    job = None if plan is None else partial(start, plan)
    comparison = run_or_resume(console, ComparisonManifest, job, folder, storage, read=collect, write=write_results)
    print_comparison(console, comparison)
    print_end(console, comparison)
    return comparison


def _show_plan(console: Console, plan: "ComparisonPlan") -> None:
    """Shows the arms, the settings in which they differ, and the resources of each trial."""
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
        counts = (sum(each[kind] for each in resources(config.spec).values()) for config in plan.arms.values())
        table.add_row(f"{kind}s of a trial", *(f"{count:g}" for count in counts))
    console.print(table)


def print_comparison(console: Console, comparison: "Comparison") -> None:
    from tuning.comparison.page import PAGE
    from tuning.comparison.report import REPORT, short_table

    head, *rows = short_table(comparison)
    table = Table(title=f"{comparison.manifest.rounds} rounds, baseline {comparison.manifest.baseline}")
    for name in head:
        table.add_column(name, no_wrap=name == "runs")
    for row in rows:
        table.add_row(*(cell.replace(" [", "\n[") for cell in row))
    console.print(table)
    print_missing(console, comparison.trials)
    print_line(console, f"report: {comparison.folder / REPORT}   page: {comparison.folder / PAGE}")
