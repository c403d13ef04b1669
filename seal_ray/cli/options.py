"""Options that several commands share. They are imported for real, as typer looks them up."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from envs.sources import SOURCES

Runs = Annotated[
    Path, typer.Option(envvar="SEAL_RAY_RUNS", help="Folder that holds the runs; a shared one on a cluster.")
]
Env = Annotated[
    str, typer.Option(help=f"Task source: {', '.join(SOURCES.built_in)}, an installed one, or package.module:NAME.")
]
Storage = Annotated[
    str | None, typer.Option(help="Folder or URI (s3://, gs://) that the folder is copied to, under its name.")
]
