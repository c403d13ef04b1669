"""`seal-ray curator` and `seal-ray pool`: the proposals of a run's curator and task writer."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from envs.errors import UserError
from envs.text import visible
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line

Picture = Annotated[Path | None, typer.Option(help="The picture to draw; by default in the folder of the (first) run.")]


def curator(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    picture: Picture = None,
    as_json: opt.AsJson = False,
) -> None:
    """Show the history of a run's arms: gain with interval, rounds, promotions, text; and draw it (arms.png)."""
    from seal_ray.report.arms import draw_history, history_as_rows, history_table, read_history

    arms = read_history(run)
    out = picture or run / "arms.png"
    with _drawing(out):
        draw_history(arms, out, title=run.resolve().name)
    if as_json:
        for row in history_as_rows(arms):
            typer.echo(json.dumps(row))
        return
    console = make_console()
    console.print(history_table(arms))
    for arm in arms:
        print_line(console, f"{arm.id}: {arm.shows}")
    print_line(console, f"{len(arms)} arms, picture in {out}")


def pool(
    runs: Annotated[list[Path], typer.Argument(help="The folder of a run, or of several that differ in their seed.")],
    picture: Picture = None,
    limit: Annotated[int, typer.Option(help="Tasks in the table, the newest first; 0 for all.", min=0)] = 30,
    as_json: opt.AsJson = False,
) -> None:
    """Show the pool of written tasks: difficulty, rollouts, provenance, specification; and draw it (pool.png).

    Of several runs: the mean success of written tasks by window, with its interval over the runs (pools.png).
    """
    from seal_ray.report.pool import draw_pool, newest, pool_table, read_pool

    if len(runs) > 1:
        _show_movement(runs, picture, as_json=as_json)
        return
    run = runs[0]
    windows = read_pool(run)
    out = picture or run / "pool.png"
    with _drawing(out):
        draw_pool(windows, out, title=run.resolve().name)
    tasks = windows[-1].tasks
    if as_json:
        for task in tasks:
            typer.echo(json.dumps(task.model_dump()))
        return
    console = make_console()
    listed = newest(tasks, limit)
    console.print(pool_table(listed))
    for number, task in enumerate(listed, 1):
        print_line(console, f"{number}: {visible(task.specification)}")
    print_line(console, f"{len(tasks)} tasks after round {windows[-1].round}, {len(listed)} shown, picture in {out}")


def _show_movement(runs: list[Path], picture: Path | None, *, as_json: bool) -> None:
    from seal_ray.report.pool import draw_movement, movement, movement_table, read_pool

    if as_json:
        raise UserError("--json: it takes one run.")
    result = movement([read_pool(run) for run in runs])
    out = picture or runs[0] / "pools.png"
    with _drawing(out):
        draw_movement(result, out, title=f"{len(runs)} runs")
    console = make_console()
    console.print(movement_table(result))
    print_line(console, f"{len(runs)} runs, picture in {out}")


@contextmanager
def _drawing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"picture: {out} cannot be written ({error.strerror}).") from None
