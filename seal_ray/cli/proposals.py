"""`seal-ray curator` and `seal-ray pool`: the proposals of a run's curator and task writer."""

import json
from pathlib import Path
from typing import Annotated

import typer

from envs.errors import UserError
from envs.text import visible
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console, print_line


def curator(
    run: Annotated[Path, typer.Argument(help="The folder of a run.")],
    as_json: opt.AsJson = False,
) -> None:
    """Show the history of a run's arms: gain with interval, rounds, promotions and text."""
    from seal_ray.report.arms import histories, history_as_rows, history_table

    arms = histories(run)
    if as_json:
        for row in history_as_rows(arms):
            typer.echo(json.dumps(row))
        return
    console = make_console()
    console.print(history_table(arms))
    for arm in arms:
        print_line(console, f"{arm.id}: {arm.shows}")
    print_line(console, f"{len(arms)} arms")


def pool(
    runs: Annotated[list[Path], typer.Argument(help="The folder of a run, or of several that differ in their seed.")],
    limit: Annotated[int, typer.Option(help="Tasks in the table, the newest first; 0 for all.", min=0)] = 30,
    as_json: opt.AsJson = False,
) -> None:
    """Show the pool of written tasks: difficulty, rollouts, provenance and specification.

    Of several runs: the mean success of written tasks by window, with its interval over the runs.
    """
    from seal_ray.report.pool import movement, movement_table, newest, pool_table, read_pool

    console = make_console()
    if len(runs) > 1:
        if as_json:
            raise UserError("--json: it takes one run.")
        console.print(movement_table(movement([read_pool(run) for run in runs])))
        return
    windows = read_pool(runs[0])
    tasks = windows[-1].tasks
    if as_json:
        for task in tasks:
            typer.echo(json.dumps(task.model_dump()))
        return
    listed = newest(tasks, limit)
    console.print(pool_table(listed))
    for number, task in enumerate(listed, 1):
        print_line(console, f"{number}: {visible(task.specification)}")
    print_line(console, f"{len(tasks)} tasks after round {windows[-1].round}, {len(listed)} shown")
