"""`seal-ray show` and `seal-ray view`: the dialogues of a run, evaluation or exam, in the terminal or in a browser."""

import json
import os
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import click
import typer
from rich.console import Console
from rich.text import Text

from envs.diagnosis import Label
from envs.errors import UserError, check_known
from envs.text import visible
from seal_ray.cli import options as opt
from seal_ray.cli.console import make_console
from seal_ray.report.chats import message_lines, shortened
from seal_ray.report.inspect_log import LoggedSample, log_files, read_samples

_ROUND = re.compile(r"\w+_0*(\d+)")
_STYLES = {"solver": "cyan", "user": "yellow", "result": "green", "error": "red", "cue": "magenta"}
Folder = Annotated[Path, typer.Argument(help="The folder of a run, comparison, evaluation or exam.")]


Port = Annotated[int, typer.Option(help="Port on this machine.", min=1, max=65535)]


def view(run: Folder, port: Port = 7575) -> None:
    """Open the dialogues in Inspect's viewer, which prints its address."""
    log_files(run)
    start = ("view", "start", "--no-trust-content", "--log-dir", str(run.resolve()), "--port", str(port))
    os.chdir("/")  # Inspect reads variables from a file `.env` in the working directory, or above it
    os.execv(sys.executable, (sys.executable, "-P", "-m", "inspect_ai", *start))  # noqa: S606 - our own Python


def show(
    run: Folder,
    round_number: Annotated[int | None, typer.Option("--round", help="A round, and the evaluation after it.")] = None,
    task: Annotated[str | None, typer.Option(help="The id of a task.")] = None,
    label: Annotated[str | None, typer.Option(help="A label that a turn has.")] = None,
    arm: Annotated[str | None, typer.Option(help="The id of an arm; plain for none.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="Failures alone.")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Show dialogues: messages with the interface's cues, the verdict on each turn, and scores."""
    check_known("--label", Label, label)

    def is_wanted(sample: LoggedSample) -> bool:
        return (
            task in (None, sample.id)
            and arm in (None, sample.arm)
            and (label is None or label in sample.labels)
            and not (failed and all(score.value != "I" for score in sample.scores.values()))
        )

    logs = [path for path in log_files(run) if round_number in (None, _round_of(path))]
    if not logs:
        raise UserError(f"--round: {round_number} has no log in {str(run)!r:.200}.")
    names = {path: str(path.relative_to(run).with_suffix("")) for path in logs}
    wanted = ((name, each) for path, name in names.items() for each in read_samples(path) if is_wanted(each))
    first = next(wanted, None)
    if first is None:
        raise UserError(f"show: no dialogue in {str(run)!r:.200} fits these options.")
    found = chain([first], wanted)
    if as_json:
        for log, sample in found:
            typer.echo(json.dumps({"log": log, **sample.model_dump()}))
    else:
        console = make_console()
        click.echo_via_pager(_rendered(console, log, sample) for log, sample in found)


def _round_of(path: Path) -> int | None:
    match = _ROUND.fullmatch(path.stem)
    return int(match[1]) if match else None


def _rendered(console: Console, log: str, sample: LoggedSample) -> str:
    with console.capture() as capture:
        for line in _lines(log, sample):
            console.print(line, soft_wrap=True)
    return capture.get()


def _lines(log: str, sample: LoggedSample) -> Iterator[Text]:
    scores = [f"{name} {score.value}" for name, score in sample.scores.items()]
    facts = [str(value) for key in ("arm", "view") if (value := sample.metadata.get(key))]
    yield Text(visible(" · ".join([log, sample.id, *facts, *scores])), "bold")
    if isinstance(tools := sample.metadata.get("tools"), dict):
        yield Text.assemble((f"{'tools':8}", "dim"), shortened(", ".join(tools)))
    for name, text in message_lines(sample):
        yield Text.assemble((f"{name:8}", style := _STYLES.get(name, "")), (text, style if name == "cue" else ""))
    for score in sample.scores.values():
        if score.explanation:
            yield Text(shortened(score.explanation), "dim")
    yield Text()
