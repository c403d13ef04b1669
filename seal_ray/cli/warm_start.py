"""`seal-ray warm-start`: supervised learning on demonstrations, before reinforcement learning."""

from pathlib import Path
from typing import Annotated

import typer

from envs.sources import GENERATED
from policies import tiny
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line
from seal_ray.cli.options import progress


def command(
    overrides: opt.Overrides = None,
    model: Annotated[str, typer.Option(help="A model by name or folder.")] = tiny.NAME,
    out: Annotated[Path, typer.Option(help="Folder of the new model; the same command resumes it.")] = ...,  # type: ignore[assignment]
    source: Annotated[
        list[str] | None,
        typer.Option(help="Task source of the demonstrations, with its share as NAME:SHARE; can be repeated."),
    ] = None,
    difficulty: Annotated[
        list[str] | None,
        typer.Option(
            help="Difficulty of generated tasks, or default; tasks have one of several. The first is evaluated."
        ),
    ] = None,
    demonstrations: Annotated[
        str,
        typer.Option(
            help="oracle: the ground truth; behaviours: right and wrong ones of the small models; rare: those in which "
            "abstaining and recovering need a cue."
        ),
    ] = "oracle",
    proposals: Annotated[
        float, typer.Option(help="Share of the demonstrations that show a curator's proposals.", min=0, max=1)
    ] = 0.0,
    tokens: Annotated[
        int, typer.Option(help="Tokens to compute in all, with prompts and results; shared ones count once.", min=1)
    ] = 300_000,
    batch_tokens: Annotated[int, typer.Option(help="Largest number of tokens of a gradient step.", min=1)] = 2048,
    evaluate_every: Annotated[int, typer.Option(help="Steps between two evaluations.", min=1)] = 100,
    tasks: Annotated[int, typer.Option(help="Evaluation tasks of each source's dev split; 0 for none.", min=0)] = 80,
    held_out: Annotated[int, typer.Option(help="Demonstrations of the dev split for the held-out loss.", min=0)] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the demonstrations.", min=0)] = 0,
) -> None:
    """Train a model on demonstrations of the training tasks. After an interrupt, the same command resumes."""
    from seal_ray.warm_start.plan import WarmStart, parse_sources
    from seal_ray.warm_start.run import PICTURE, WORK, warm_start

    plan = WarmStart(
        model=model,
        sources=parse_sources(source or [GENERATED]),
        difficulties=tuple(None if code == "default" else code for code in difficulty or ["default"]),
        demonstrations=demonstrations,  # type: ignore[arg-type] # checked in `WarmStart`
        proposals=proposals,
        tokens=tokens,
        batch_tokens=batch_tokens,
        evaluate_every=evaluate_every,
        tasks=tasks,
        held_out=held_out,
        seed=seed,
        overrides=tuple(overrides or ()),
    )
    console = make_console()
    with progress(console) as report:
        folder = warm_start(plan, out, report)
    print_line(console, f"model: {folder}   curves: {folder / WORK / PICTURE}")
