"""The `seal-ray` application: its commands, and exit codes of errors."""

import errno
import logging
import re
import signal
import sys
import traceback
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, entry_points, requires, version
from typing import Annotated

import typer

from envs.errors import SealError, UserError
from envs.trusting import restricted
from seal_ray.cli import dialogues, evaluate, exam, export, play, proposals, serve, tasks, tiny, train, warm_start
from seal_ray.cli.console import HarmlessRecord, ask, harmless, is_interactive

app = typer.Typer(
    help=(
        "Co-evolution of a tool-use solver and an environment curator on multi-turn benchmarks.\n\n"
        "Start with [bold]seal-ray tasks --counts[/bold] to count the tasks, and with "
        "[bold]seal-ray play multi_turn_base_0 --oracle[/bold] to watch a dialogue."
    ),
    rich_markup_mode="rich",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_versions(asked: bool) -> None:
    """Prints the versions of this project and its installed requirements."""
    if asked:
        needed = [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in requires("seal-ray") or ()]
        for name in ["seal-ray", *sorted(set(needed))]:
            with suppress(PackageNotFoundError):
                typer.echo(f"{name} {version(name)}")
        raise typer.Exit


@app.callback()
def _options(
    _: Annotated[
        bool, typer.Option("--version", help="Show the installed versions.", callback=_show_versions, is_eager=True)
    ] = False,
) -> None:
    """The options before a command."""


app.command("tasks")(tasks.command)
app.command("play")(play.command)
app.command("evaluate")(evaluate.command)
app.command("exam")(exam.command)
app.command("presets")(train.presets)
app.command("train")(train.command)
app.command("warm-start")(warm_start.command)
app.command("extract-adapter")(export.extract_adapter)
app.command("export")(export.export)
app.command("serve")(serve.command)
app.command("show")(dialogues.show)
app.command("view")(dialogues.view)
app.command("curator")(proposals.curator)
app.command("pool")(proposals.pool)
app.add_typer(tiny.app, name="tiny")


@cache
def add_commands_of_other_floors() -> None:
    """Adds the commands of packages with the entry point `seal_ray.commands`."""
    for point in entry_points(group="seal_ray.commands"):
        app.command(point.name)(point.load())


_PATH_ERRORS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)
"""Errors of paths that a user has named."""
_INTERRUPTED = 130
"""The exit code of an interrupted command, of typer and shells."""


def main() -> None:
    """Runs the command line. Exit codes: 0 success, 1 a fault, 2 a user's mistake, 130 interrupted."""
    # A stopped job gets SIGTERM, and must end the processes of engines. Background jobs of shell scripts ignore SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    # Log messages of libraries may contain text of received files.
    logging.setLogRecordFactory(HarmlessRecord)
    sys.excepthook = lambda *error: sys.stderr.write(harmless("".join(traceback.format_exception(*error))))
    try:
        add_commands_of_other_floors()
        with restricted(sys.argv[1:], ask=ask if is_interactive() else None):
            app()
    except UserError as error:
        sys.stderr.write(harmless(f"error: {error}\n"))
        sys.exit(2)
    except SealError as error:
        sys.stderr.write(harmless(f"failed: {error}\n"))
        sys.exit(1)
    except OSError as error:  # of a file or folder that a user has named
        if error.errno not in _PATH_ERRORS:
            raise
        sys.stderr.write(harmless(f"error: {str(error.filename)[:200]}: {error.strerror}.\n"))
        sys.exit(2)
    except (KeyboardInterrupt, SystemExit) as error:  # typer turns an interrupt into an exit code
        if isinstance(error, SystemExit) and error.code != _INTERRUPTED:
            raise
        sys.stderr.write("interrupted\n")
        sys.exit(_INTERRUPTED)
