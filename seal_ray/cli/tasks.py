"""`seal-ray tasks`: the tasks of a source, filtered, listed or counted."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated

import typer
from rich.table import Column, Table

from envs.errors import UserError, check_known
from envs.sources import BENCHMARK, PARTS, Overlap, Split, TaskSource, class_counts, get_source
from envs.task import JSON, Task
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console

_FIRST = 20
"""Tasks in the list of a source without end."""
_number = partial(Column, justify="right")


def command(
    category: opt.Category = None,
    involves: Annotated[
        list[str] | None, typer.Option("--class", help="Only tasks that involve this simulator class.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, dev, test or all.")] = "all",
    split_scheme: Annotated[
        str | None, typer.Option(help="scenario (the default), category, or a JSON file with train and test ids.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split scheme.")] = 0,
    limit: Annotated[int, typer.Option(help="Rows to list; 0 lists all.", min=0)] = 20,
    counts: Annotated[bool, typer.Option("--counts", help="Count instead of listing.")] = False,
    as_json: opt.AsJson = False,
    env: opt.Env = BENCHMARK,
) -> None:
    """List the tasks, filtered by category, simulator class or split, or count them."""
    source = get_source(env, key="env")
    check_known("category", source.categories, *(category or ()))
    every = () if source.endless else source.split().part("all")
    classes = class_counts(every)
    check_known("class", classes, *(involves or ()))
    if counts and as_json:
        raise UserError("--counts and --json: give one of them, not both.")
    if source.endless and not (counts or as_json):
        _print_first(source, split, limit or _FIRST, category)
        return
    scheme = source.split(split_scheme, seed=seed)
    chosen = [
        task
        for task in scheme.part(split)
        if (not category or task.category in category) and (not involves or set(involves) & set(task.classes))
    ]
    if as_json:
        _print_json(chosen, scheme)
    else:
        _print_tables(chosen, scheme, source, limit=limit, counts=counts, total=len(every))


def _print_first(source: TaskSource, part: str, number: int, categories: list[str] | None) -> None:
    """Lists the first tasks of a source without end."""
    part = "train" if part == "all" else part
    check_known("split", source.parts, part)
    pool = source.pool(part, categories=categories)
    tasks = [source.task(pool.task_id(place)) for place in range(number)]
    console = make_console(highlight=True)
    console.print(_listing(tasks, dict.fromkeys((task.id for task in tasks), part)))
    console.print(f"the first {number} of {source.name}, which makes tasks without end")


def _splits(split: Split) -> dict[str, str]:
    return {task.id: part for part in PARTS for task in split.part(part)}


def _print_json(chosen: Sequence[Task], split: Split) -> None:
    parts = _splits(split)
    for task in chosen:
        row: dict[str, JSON] = {
            "id": task.id,
            "category": str(task.category),
            "scenario": task.scenario,
            "part": parts[task.id],
            "turns": len(task.turns),
            "calls": _calls(task),
            "tools": len(task.all_tools),
            "classes": list(task.classes),
        }
        typer.echo(json.dumps(row))


def _print_tables(
    chosen: Sequence[Task], split: Split, source: TaskSource, *, limit: int, counts: bool, total: int
) -> None:
    console = make_console(highlight=True, markup=True)
    if not counts:
        shown = chosen if limit == 0 else chosen[:limit]
        console.print(_listing(shown, _splits(split)))
        if len(shown) < len(chosen):
            console.print(f"… and {len(chosen) - len(shown)} more (--limit 0 lists all, --counts counts them)")
    else:
        console.print(_count_table(chosen, split, source.categories))
        console.print(_class_table(chosen))
    console.print(f"{len(chosen)} of {total} tasks, split scheme {split.name}")
    if split.ignored:
        console.print(f"ignored in the file: {', '.join(map(repr, split.ignored))}", markup=False)
    if split.leaky and counts:
        console.print(_overlap_table(source.overlaps(split)))
    if split.leaky:
        console.print(
            "[yellow]This split scheme leaks: its splits share scenarios, many with identical ground-truth calls. "
            "Use --split-scheme scenario for meaningful results.[/yellow]"
        )


def _listing(chosen: Sequence[Task], parts: Mapping[str, str]) -> Table:
    names = (Column(name, no_wrap=True) for name in ("task", "category", "split"))
    table = Table(*names, *map(_number, ("turns", "calls", "tools")), "classes")
    for task in chosen:
        numbers = (str(len(task.turns)), str(_calls(task)), str(len(task.all_tools)))
        table.add_row(task.id, str(task.category), parts[task.id], *numbers, ", ".join(task.classes))
    return table


def _count_table(chosen: Sequence[Task], split: Split, categories: Sequence[str]) -> Table:
    table = Table("category", *map(_number, (*PARTS, "all")), title="tasks by category and split")
    parts = _splits(split)
    cells = Counter((task.category, parts[task.id]) for task in chosen)
    for category in categories:
        row = [cells[category, part] for part in PARTS]
        table.add_row(str(category), *map(str, row), str(sum(row)))
    totals = [sum(cells[category, part] for category in categories) for part in PARTS]
    table.add_row("all", *map(str, totals), str(sum(totals)), style="bold")
    return table


def _overlap_table(overlaps: Sequence[Overlap]) -> Table:
    numbers = map(_number, ("tasks", "same scenario", "same ground truth"))
    table = Table("tasks of", "shared with", *numbers, title="tasks that splits share")
    for each in overlaps:
        table.add_row(each.of, each.known, *map(str, (each.tasks, each.scenario, each.ground_truth)))
    return table


def _class_table(chosen: Sequence[Task]) -> Table:
    table = Table("simulator class", _number("tasks"), title="tasks by simulator class (most involve two)")
    for name, count in class_counts(chosen).items():
        table.add_row(name, str(count))
    return table


def _calls(task: Task) -> int:
    return sum(len(turn.ground_truth) for turn in task.turns)
