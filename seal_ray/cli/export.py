"""`seal-ray export` and `seal-ray extract-adapter`: trained models as folders for others."""

from pathlib import Path
from typing import Annotated

import typer

from envs.errors import UserError
from envs.folders import make_folder
from seal_ray.cli.console import make_console, print_line


def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or one of its checkpoints.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Write the whole model of a run that trained a LoRA adapter.")
    ] = False,
) -> None:
    """Export a trained solver: weights, tokenizer, chat template and model card; of a LoRA run, the adapter."""
    from seal_ray.run.export import release

    number, is_adapter = release(run, out, merge=merge)
    print_line(make_console(), f"{'adapter' if is_adapter else 'model'} of round {number} in {out}")


def extract_adapter(
    tuned: Annotated[Path, typer.Argument(help="The folder of a fine-tuned model.")],
    base: Annotated[str, typer.Option(help="Its base model, by name or folder.")],
    out: Annotated[Path, typer.Option(help="Folder of the adapter, new or empty.")],
    rank: Annotated[int, typer.Option(help="Rank of the adapter.", min=1)] = 32,
) -> None:
    """Write the LoRA adapter that is nearest to what a model has learnt, in PEFT's format and float16."""
    from policies.engine.adapters import TENSOR_FILE, write_adapter
    from policies.models import open_model
    from policies.models.merging import extracted

    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"--out: {out} exists; give an empty or new folder.")
    known, learnt = open_model(base), open_model(str(tuned))
    make_folder(out)  # before extraction, which takes minutes
    try:
        adapter, share = extracted(known.path, learnt.path, rank=rank)
    except BaseException:
        out.rmdir()
        raise
    write_adapter(adapter, out, base=known.public_name)
    size = (out / TENSOR_FILE).stat().st_size
    print_line(
        make_console(), f"{out}: rank {rank}, {size / 1e6:.1f} MB, {100 * share:.1f} % of the change (sum of squares)"
    )
