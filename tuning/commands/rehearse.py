"""`seal-ray rehearse`: a run that is meant for GPUs, on this machine's CPUs with narrow layers."""

import time
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from envs.errors import UserError
from envs.folders import make_folder
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line


def command(
    words: opt.Overrides = None,
    preset: opt.Presets = None,
    nodes: Annotated[int, typer.Option(help="Machines; actors are as many times more.", min=1)] = 1,
    gpu_gib: Annotated[int, typer.Option(help="Memory of a GPU in GiB, for the estimate.", min=1)] = 80,
    name: opt.Name = None,
    runs: opt.Runs = Path("runs"),
) -> None:
    """Rehearse a run on CPUs with narrow layers: placement, rounds, faults, resume, evaluation, export, serving."""
    from seal_ray.algorithm.config import make_config
    from tuning.rehearsal import ACTORS, Rehearsal, setting

    words = list(words or [])
    spec = make_config(preset or [], overrides=words).spec
    if nodes > 1:
        words += [f"{key}={nodes * setting(spec, key)}" for key in ACTORS]
        spec = make_config(preset or [], overrides=words).spec
    folder = runs / (name or time.strftime("rehearse-%Y%m%d-%H%M%S"))
    if folder.exists():
        raise UserError(f"--name: {folder} exists; give another name.")
    make_folder(folder, "--runs")
    console = make_console()
    rehearsal = Rehearsal(
        spec, [*(f"--preset={each}" for each in preset or []), *words], folder, nodes=nodes, gpu_gib=gpu_gib
    )
    rehearsal.play(partial(print_line, console))
    console.print(rehearsal.table)
