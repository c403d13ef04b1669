"""`seal-ray export`: a run's solver as a Hugging Face folder to hand on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console


def command(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or one of its checkpoints.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Write the whole model of a run that trained a LoRA adapter.")
    ] = False,
) -> None:
    """Export a trained solver: weights, tokenizer, chat template and model card; of a LoRA run, the adapter."""
    from seal_ray.run.release import release

    released = release(run, out, merge=merge)
    kind = "adapter" if released.adapter else "model"
    Console(highlight=False).print(f"{kind} of round {released.round} in {out}", soft_wrap=True, markup=False)
