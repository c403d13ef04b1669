"""Options that several commands share. They are imported for real, as typer looks them up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envs.errors import UserError
from envs.sources import TaskSource, get_source

Runs = Annotated[
    Path, typer.Option(envvar="SEAL_RAY_RUNS", help="Folder that holds the runs; a shared one on a cluster.")
]
Storage = Annotated[
    str | None, typer.Option(help="Folder or URI (s3://, gs://) that the folder is copied to, under its name.")
]


def named_source(env: str) -> TaskSource:
    """The task source of an option `--env`. Raises `UserError`."""
    try:
        return get_source(env)
    except UserError as error:
        raise UserError(f"env: {str(error).removeprefix('source: ')}") from None
