"""`seal-ray reproduce`: the tables of SEAL (arXiv 2605.24426), a comparison for each backbone, next to the paper's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from envs.errors import UserError
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line
from tuning.commands.compare import run_comparison
from tuning.record import State

if TYPE_CHECKING:
    from tuning.comparison.collect import Comparison
    from tuning.comparison.plan import ComparisonPlan

BEFORE = "before training"
PAPER: Mapping[str, Mapping[str, float]] = {
    "qwen2.5-3b": {BEFORE: 5.75, "vanilla": 9.25, "seal": 14.0},
    "qwen2.5-7b": {
        BEFORE: 14.0,
        "vanilla": 30.75,
        "seal": 40.25,
        "wo-environment": 35.75,
        "wo-reweighting": 32.75,
        "wo-closed-loop": 33.0,
    },
    "toolace-2-8b": {BEFORE: 32.0, "vanilla": 38.5, "seal": 46.75},
}
"""Backbone → arm → success in % on 400 test tasks, one run each (main table, Table 3)."""


class PaperTable(StrEnum):
    """A table of the paper."""

    MAIN = "main"
    ABLATIONS = "ablations"


ARMS = {
    PaperTable.MAIN: ("vanilla", "seal"),
    PaperTable.ABLATIONS: ("vanilla", "seal", "wo-environment", "wo-reweighting", "wo-closed-loop"),
}
MODELS = {PaperTable.MAIN: tuple(PAPER), PaperTable.ABLATIONS: ("qwen2.5-7b",)}


def command(
    table: Annotated[PaperTable, typer.Argument(help="main: backbones × vanilla, SEAL. ablations: SEAL's on 7B.")],
    words: opt.Overrides = None,
    model: Annotated[
        list[str] | None, typer.Option(help="Model preset instead of the paper's backbones; can be repeated.")
    ] = None,
    split_scheme: Annotated[
        str | None,
        typer.Option(help="Scheme or JSON file, for instance of the published split; else the scenario-disjoint one."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each arm; 3 if not given, the paper has 1.")] = None,
    rounds: opt.Rounds = None,
    name: opt.Name = None,
    runs: opt.Runs = Path("runs"),
    dry_run: opt.DryRun = False,
) -> None:
    """Reproduce a table of SEAL on the test split. After Ctrl-C or a kill, the same command resumes."""
    from tuning.comparison.plan import make_plan

    folder, console = runs / (name or f"reproduce-{table}"), make_console()
    settings = ["evaluation.split=test", *(words or [])]
    if split_scheme is not None:
        settings.append(f"environment.split_scheme={split_scheme}")
    comparisons: dict[str, Comparison] = {}
    for each in model or MODELS[table]:
        print_line(console, f"{each}: {', '.join(ARMS[table])}")
        plan = make_plan(ARMS[table], seeds=seeds, rounds=rounds, model=each, overrides=settings)
        own = folder / Path(each).stem
        begun = not dry_run and own.is_dir()
        if begun:
            _check_same(own, plan)
        comparison = run_comparison(console, None if begun else plan, own, dry_run=dry_run)
        if comparison is None:
            continue
        comparisons[each] = comparison
        if any(trial.state is not State.FINISHED for trial in comparison.trials):
            print_line(console, "not finished; the same command resumes")
            break
    if not comparisons:
        return
    shown = Table("model", "arm", "paper", "measured", "runs", title="success, %, test tasks", title_justify="left")
    for row in rows_of(comparisons):
        shown.add_row(*row)
    console.print(shown)
    used = "the scenario-disjoint split" if split_scheme is None else f"the split {split_scheme}"
    print_line(
        console,
        f"Measured on {used}. The paper's numbers are of its own split, in which 344 of 400 test tasks share their "
        "scenario with a training task, and of one run each.",
    )


def _check_same(folder: Path, plan: ComparisonPlan) -> None:
    """Raises `UserError` if the comparison in the folder has another plan."""
    from seal_ray.report.files import RunFolder
    from tuning.comparison.collect import ComparisonManifest, trial_folder

    begun = ComparisonManifest.read(folder)
    same = list(begun.arms) == list(plan.arms) and list(begun.seeds) == list(plan.seeds)
    if not same or any(
        RunFolder(trial_folder(folder, arm, seed)).read_config() != {"seed": seed, **plan.sections[arm]}
        for arm, seed in begun.trials()
    ):
        raise UserError(f"--name: {folder} has other settings; give these again, or another name.")


def rows_of(comparisons: Mapping[str, Comparison]) -> Iterator[tuple[str, str, str, str, str]]:
    """The paper's number, the measured one with its interval, and its number of runs, by model and arm."""
    from tuning.comparison.findings import shown
    from tuning.comparison.measures import FINAL, results_of

    for model, comparison in comparisons.items():
        paper = PAPER.get(model, {})
        starts = [row["evaluation/success"] for trial in comparison.trials for row in trial.rows if row["round"] == 0]
        before = f"{100 * starts[0]:.1f}" if starts else "–"
        yield model, BEFORE, _number(paper.get(BEFORE)), before, str(min(1, len(starts)))
        for result in results_of(comparison, FINAL):
            finished = len(comparison.arm_trials(result.arm, State.FINISHED))
            yield "", result.arm, _number(paper.get(result.arm)), shown(result.estimate), str(finished)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"
