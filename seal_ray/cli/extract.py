"""`seal-ray extract-adapter`: what a model has learnt, as a LoRA adapter of the model that it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envs.errors import UserError
from envs.folders import make_folder
from seal_ray.cli.console import make_console


def command(
    tuned: Annotated[Path, typer.Argument(help="The folder of the model that has learnt.")],
    base: Annotated[str, typer.Option(help="The model that it came from, by name or folder.")],
    out: Annotated[Path, typer.Option(help="Folder of the adapter, new or empty.")],
    rank: Annotated[int, typer.Option(help="Rank of the adapter.", min=1)] = 32,
) -> None:
    """Write the LoRA adapter that comes nearest to what a model has learnt, in PEFT's format and float16."""
    from policies.engine.adapters import TENSOR_FILE, write_adapter
    from policies.models import open_model
    from policies.models.merging import extracted

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out: {out} is there already; give an empty or new folder.")
    known, learnt = open_model(base), open_model(str(tuned))
    make_folder(out)  # what follows takes minutes
    try:
        found = extracted(known.path, learnt.path, rank=rank)
    except BaseException:
        out.rmdir()
        raise
    write_adapter(found.adapter, out, base=known.public_name)
    size = (out / TENSOR_FILE).stat().st_size
    make_console(markup=False).print(
        f"{out}: rank {rank}, {size / 1e6:.1f} MB, {100 * found.share:.1f} % of the change (sum of squares)",
        soft_wrap=True,
    )
