"""`seal-ray pool`: the tasks that were written in a run, where they come from, and how hard they are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from envs.errors import UserError


def command(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    picture: Annotated[
        Path | None, typer.Option(help="The picture to draw; else pool.png in the folder of the run.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Tasks in the table, the newest first; 0 for all.", min=0)] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")] = False,
) -> None:
    """Show the pool of written tasks: difficulty with interval, rollouts, provenance, specification; and draw it."""
    from seal_ray.report.arms import visible
    from seal_ray.report.pool import draw_pool, newest, pool_table, read_pool

    windows = read_pool(run)
    out = picture or run / "pool.png"
    try:
        draw_pool(windows, out, title=run.resolve().name)
    except OSError as error:
        raise UserError(f"picture: {out} cannot be written ({error.strerror}).") from None
    tasks = windows[-1].tasks
    if as_json:
        for task in tasks:
            typer.echo(task.model_dump_json())
        return
    console = Console(highlight=False)
    shown = newest(tasks, limit)
    console.print(pool_table(shown))
    for number, task in enumerate(shown, 1):
        console.print(f"{number}: {visible(task.specification)}", markup=False, soft_wrap=True)
    console.print(
        f"{len(tasks)} tasks after round {windows[-1].round}, {len(shown)} shown, picture in {out}",
        markup=False,
        soft_wrap=True,
    )
