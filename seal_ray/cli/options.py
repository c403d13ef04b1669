"""Options that several commands share. They are imported for real, as typer looks them up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

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


_LINES = 20
"""Lines that a command prints from begin to end where there is no terminal."""

Update = Callable[[str, int, int, str], None]
"""Is told the stage, how much is done of how much, and what else there is to say."""


@contextmanager
def progress(console: Console) -> Iterator[Update]:
    """Shows what the function that it gives is told."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[more]}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        shown = bar.add_task("", total=None, more="")
        yield lambda stage, done, total, more: bar.update(
            shown, description=stage, completed=done, total=total, more=more
        )


class _Lines:
    """Prints a line at every new stage and at every twentieth part of it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last = ("", -1)

    def __call__(self, stage: str, done: int, total: int, more: str) -> None:
        part = (stage, done * _LINES // max(1, total))
        if part != self._last:
            self._last = part
            self._console.print(f"{stage}: {done:,} of {total:,} {more}".rstrip(), soft_wrap=True)
