"""The `seal-ray` application: its commands, and how its errors end."""

from __future__ import annotations

import errno
import logging
import re
import signal
import sys
import traceback
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from pathlib import Path
from typing import Annotated

import typer

from envs.errors import SealError, UserError
from envs.trusting import restricted
from seal_ray.cli import curator, evaluate, exam, extract, pool, serve, tiny, train, warm_start
from seal_ray.cli.console import HarmlessRecord, ask, harmless, is_interactive, make_console
from seal_ray.cli.play import play
from seal_ray.cli.tasks import tasks

app = typer.Typer(
    help=(
        "Co-evolution of a tool-use solver and an environment curator on multi-turn benchmarks.\n\n"
        "Start with [bold]seal-ray tasks --counts[/bold] to see what there is, and with "
        "[bold]seal-ray play multi_turn_base_0 --oracle[/bold] to watch one dialogue being solved and judged."
    ),
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_versions(asked: bool) -> None:
    """Those of this project and of all that it names in its requirements, as far as they are installed."""
    if asked:
        needed = [re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in requires("seal-ray") or ()]
        for name in ["seal-ray", *sorted(set(needed))]:
            with suppress(PackageNotFoundError):
                typer.echo(f"{name} {version(name)}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the versions of what is installed.", callback=_show_versions, is_eager=True
        ),
    ] = False,
) -> None:
    """Takes what is given before a command."""


app.command()(tasks)
app.command()(play)
app.command("evaluate")(evaluate.command)
app.command("exam")(exam.command)
app.command("train")(train.command)
app.command("warm-start")(warm_start.command)
app.command("extract-adapter")(extract.command)


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or one of its checkpoints.")],
    out: Annotated[Path, typer.Option(help="Folder to write; it must not exist.")],
    merge: Annotated[
        bool, typer.Option("--merge", help="Write the whole model of a run that trained a LoRA adapter.")
    ] = False,
) -> None:
    """Export a trained solver: weights, tokenizer, chat template and model card; of a LoRA run, the adapter."""
    from seal_ray.run.release import release

    released = release(run, out, merge=merge)
    kind = "adapter" if released.adapter else "model"
    make_console().print(f"{kind} of round {released.round} in {out}", soft_wrap=True, markup=False)


app.command("serve")(serve.command)
app.command("curator")(curator.command)
app.command("pool")(pool.command)
app.add_typer(tiny.app, name="tiny")


@cache
def _add_commands_of_other_floors() -> None:
    """Those that packages above this one offer under the entry point `seal_ray.commands`, by their names there."""
    for found in entry_points(group="seal_ray.commands"):
        app.command(found.name)(found.load())


_THE_USERS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""What a system says of a path that cannot be had with the rights that the user has, or that is none."""
_INTERRUPTED = 130
"""The exit code of an interrupted command: typer's, and that of shells for SIGINT."""


def main() -> None:
    """Runs the command line. Exit codes: 0 success, 1 a fault, 2 a user's mistake, 130 interrupted."""
    # A stopped job gets SIGTERM. Engines have processes of their own, which must be ended in good order. Background
    # jobs of a shell script ignore SIGINT, which would then go for both.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    # What a library says of a received file may hold its text.
    logging.setLogRecordFactory(HarmlessRecord)
    sys.excepthook = lambda *error: sys.stderr.write(harmless("".join(traceback.format_exception(*error))))
    try:
        _add_commands_of_other_floors()
        with restricted(sys.argv[1:], ask=ask if is_interactive() else None):
            app()
    except UserError as error:
        sys.stderr.write(harmless(f"error: {error}\n"))
        sys.exit(2)
    except SealError as error:
        sys.stderr.write(harmless(f"failed: {error}\n"))
        sys.exit(1)
    except OSError as error:  # of a file or folder that a user has named, wherever it is met
        if error.errno not in _THE_USERS:
            raise
        sys.stderr.write(harmless(f"error: {str(error.filename)[:200]}: {error.strerror}.\n"))
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as error:  # an interrupted command comes here as its exit code
        if isinstance(error, SystemExit) and error.code != _INTERRUPTED:
            raise
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)
