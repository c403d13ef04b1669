"""`seal-ray pool`: the tasks that were written in a run, where they come from, and how hard they are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from envs.errors import UserError
from envs.text import visible
from seal_ray.cli.console import make_console


def command(
    runs: Annotated[list[Path], typer.Argument(help="The folder of a run, or of several that differ in their seed.")],
    picture: Annotated[
        Path | None, typer.Option(help="The picture to draw; else pool.png or, of several, pools.png in the first.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Tasks in the table, the newest first; 0 for all.", min=0)] = 30,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")] = False,
) -> None:
    """Show the pool of written tasks: difficulty with interval, rollouts, provenance, specification; and draw it.

    Of several runs: the mean success of written tasks by window, with its interval over the runs.
    """
    if len(runs) > 1:
        _show_movement(runs, picture, as_json=as_json)
        return
    from seal_ray.report.pool import draw_pool, newest, pool_table, read_pool

    run = runs[0]
    windows = read_pool(run)
    out = picture or run / "pool.png"
    try:
        draw_pool(windows, out, title=run.resolve().name)
    except OSError as error:
        raise UserError(f"picture: {out} cannot be written ({error.strerror}).") from None
    tasks = windows[-1].tasks
    if as_json:
        for task in tasks:
            typer.echo(json.dumps(task.model_dump()))
        return
    console = make_console()
    shown = newest(tasks, limit)
    console.print(pool_table(shown))
    for number, task in enumerate(shown, 1):
        console.print(f"{number}: {visible(task.specification)}", markup=False, soft_wrap=True)
    console.print(
        f"{len(tasks)} tasks after round {windows[-1].round}, {len(shown)} shown, picture in {out}",
        markup=False,
        soft_wrap=True,
    )


def _show_movement(runs: list[Path], picture: Path | None, *, as_json: bool) -> None:
    from seal_ray.report.pool import read_pool
    from seal_ray.report.pools import draw_movement, movement, movement_table

    if as_json:
        raise UserError("--json: it takes one run.")
    found = movement([read_pool(run) for run in runs])
    out = picture or runs[0] / "pools.png"
    try:
        draw_movement(found, out, title=f"{len(runs)} runs")
    except OSError as error:
        raise UserError(f"picture: {out} cannot be written ({error.strerror}).") from None
    console = make_console()
    console.print(movement_table(found))
    console.print(f"{len(runs)} runs, picture in {out}", markup=False, soft_wrap=True)
