"""Options that several commands have, and a display of progress.

Typer evaluates the annotations of a command: import these names at runtime.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console

from envs.errors import UserError, check_known
from envs.sources import SOURCES
from envs.trusting import trust_everything
from policies.engine.choice import DTYPES, KINDS
from policies.engine.requests import check_temperature
from seal_ray.cli.console import print_line
from seal_ray.cli.panel import live_panel
from seal_ray.statistics import Interval

Model = Annotated[str, typer.Argument(help="A model by name, a model folder, or a run of seal-ray train.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="section.key=value …", help="Settings, for instance training.groups=8.")
]
Presets = Annotated[
    list[str] | None,
    typer.Option("--preset", help="A model preset, a method preset, or both; see seal-ray presets."),
]
Runs = Annotated[
    Path, typer.Option(envvar="SEAL_RAY_RUNS", help="Folder that holds the runs; a shared one on a cluster.")
]
Name = Annotated[str | None, typer.Option(help="Name of the new folder in --runs; by default the time.")]
Resume = Annotated[str | None, typer.Option(help="Folder to resume, or its copy in --storage.")]
Storage = Annotated[
    str | None, typer.Option(help="Folder or URI (s3://, gs://) that the folder is copied to, under its name.")
]
Rounds = Annotated[int | None, typer.Option(help="Rounds of each run, instead of the preset's.")]
RunSeed = Annotated[int | None, typer.Option("--seed", help="Seed; the same seed repeats a run or a sweep.", min=0)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan, and start nothing.")]
Env = Annotated[
    str, typer.Option(help=f"Task source: {', '.join(SOURCES.built_in)}, an installed one, or package.module:NAME.")
]
Category = Annotated[list[str] | None, typer.Option(help="Only this category; can be given several times.")]
Seed = Annotated[int, typer.Option(help="Seed of the sampling.")]
Temperature = Annotated[float, typer.Option(help="0 is greedy.", min=0.0)]
TopP = Annotated[float, typer.Option(help="Nucleus of the sampling.")]
Context = Annotated[int | None, typer.Option(help="Largest number of tokens of a dialogue.", min=1)]
Response = Annotated[int, typer.Option(help="Largest number of tokens of a completion.", min=1)]
Dialect = Annotated[str | None, typer.Option(help="Syntax of tool calls: qwen, llama3_json or toolace.")]
EngineKind = Annotated[str | None, typer.Option("--engine", help="vllm or transformers.")]
Dtype = Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")]
Concurrent = Annotated[int, typer.Option(help="Number of dialogues or requests at a time.", min=1)]
Fresh = Annotated[bool, typer.Option("--fresh", help="Discard the results in the folder.")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line instead of a table.")]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        callback=lambda given: trust_everything() if given else None,
        is_eager=True,
        help="Run code from files: import names in them, and pickles.",
    ),
]


def check_sampling(temperature: float, top_p: float = 1.0) -> None:
    """Raises `UserError` for a temperature or nucleus that no engine supports."""
    if not 0 < top_p <= 1:
        raise UserError(f"--top-p: {top_p} is not possible; it must be above 0 and at most 1.")
    check_temperature("--temperature", temperature)


def check_engine(engine: str | None, dtype: str | None) -> None:
    """Raises `UserError` for an unknown engine or dtype."""
    check_known("engine", KINDS, engine)
    check_known("dtype", DTYPES, dtype)


_LINES = 20
"""Number of lines that a command prints for a stage without a terminal."""


class Update(Protocol):
    """Gets the stage, the number of finished items, the number of all, details, and the success so far."""

    def __call__(self, stage: str, done: int, total: int, details: str, success: Interval | None = None, /) -> None: ...


@contextmanager
def progress(console: Console) -> Iterator[Update]:
    """A panel in a terminal; otherwise a line at every new stage, and at every twentieth part of it."""
    last = ("", -1)

    def show(stage: str, done: int, total: int, details: str, success: Interval | None = None, /) -> None:
        nonlocal last
        if panel is not None:
            rows = {} if success is None else {"success": f"{success.share:.1%}, 95 % interval {success} %"}
            panel.show(stage, done, total, {**rows, "now": details} if details else rows)
            return
        part = (stage, done * _LINES // max(1, total))
        if part != last:
            last = part
            print_line(console, f"{stage}: {done:,} of {total:,} {details}".rstrip())

    with live_panel(console) as panel:
        yield show
