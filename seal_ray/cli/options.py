"""What several commands share: options, which are imported for real, as typer looks them up, and a display of progress.

Progress is a live bar in a terminal, and a line now and then where the output goes to a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from envs.errors import UserError
from envs.sources import SOURCES
from envs.trusting import trust_everything
from policies.engine.requests import check_temperature

Runs = Annotated[
    Path, typer.Option(envvar="SEAL_RAY_RUNS", help="Folder that holds the runs; a shared one on a cluster.")
]
Env = Annotated[
    str, typer.Option(help=f"Task source: {', '.join(SOURCES.built_in)}, an installed one, or package.module:NAME.")
]
Storage = Annotated[
    str | None, typer.Option(help="Folder or URI (s3://, gs://) that the folder is copied to, under its name.")
]
Name = Annotated[str | None, typer.Option(help="Name of the new folder in --runs; by default the time.")]
Resume = Annotated[str | None, typer.Option(help="Folder to resume, or its copy in --storage.")]
Rounds = Annotated[int | None, typer.Option(help="Rounds of each run, instead of the preset's.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be run, and start nothing.")]

Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        callback=lambda given: trust_everything() if given else None,
        is_eager=True,
        help="Let code run that files bring: import names in them, and pickles.",
    ),
]


def check_sampling(temperature: float, top_p: float = 1.0) -> None:
    """Raises `UserError` for what no engine samples at."""
    if not 0 < top_p <= 1:
        raise UserError(f"--top-p: {top_p} is not possible; it must be above 0 and at most 1.")
    check_temperature("--temperature", temperature)


_LINES = 20
"""Lines that a command prints from begin to end where there is no terminal."""

Update = Callable[[str, int, int, str], None]
"""Is told the stage, how much is done of how much, and what else there is to say."""


@contextmanager
def progress(console: Console) -> Iterator[Update]:
    """Shows what the function that it gives is told."""
    last = ("", -1)

    def print_line(stage: str, done: int, total: int, more: str) -> None:
        """At every new stage, and at every twentieth part of it."""
        nonlocal last
        part = (stage, done * _LINES // max(1, total))
        if part != last:
            last = part
            console.print(f"{stage}: {done:,} of {total:,} {more}".rstrip(), soft_wrap=True)

    if not console.is_terminal:
        yield print_line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[more]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        shown = bar.add_task("", total=None, more="")
        yield lambda stage, done, total, more: bar.update(
            shown, description=stage, completed=done, total=total, more=more
        )
