"""`seal-ray curator`: what a run's curator proposed, what it was worth, and which of it stayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from envs.errors import UserError
from seal_ray.cli.console import make_console


def command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    picture: Annotated[
        Path | None, typer.Option(help="The picture to draw; else arms.png in the folder of the run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")] = False,
) -> None:
    """Show the history of a run's arms: gain with interval, rounds, promoted or not, text; and draw it."""
    from seal_ray.report.arms import draw_history, history_as_rows, history_table, read_history

    arms = read_history(run)
    out = picture or run / "arms.png"
    try:
        draw_history(arms, out, title=run.resolve().name)
    except OSError as error:
        raise UserError(f"picture: {out} cannot be written ({error.strerror}).") from None
    if as_json:
        for row in history_as_rows(arms):
            typer.echo(json.dumps(row))
        return
    console = make_console()
    console.print(history_table(arms))
    for arm in arms:
        console.print(f"{arm.id}: {arm.shows}", markup=False, soft_wrap=True)
    console.print(f"{len(arms)} arms, picture in {out}", markup=False, soft_wrap=True)
