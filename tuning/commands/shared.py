"""The common part of `compare` and `sweep`: their folder, running or resuming trials, and a line for every event."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console

from envs.errors import SealError, UserError
from seal_ray.cli.console import print_line
from seal_ray.cli.panel import Panel, live_panel, minutes
from seal_ray.cli.train import percent, success_text
from tuning.record import State, TrialRecord, TrialsManifest

if TYPE_CHECKING:
    from tuning.comparison.collect import Comparison
    from tuning.running import OnEvent, TrialEvent
    from tuning.sweep.results import Sweep

    TrialSet = Comparison | Sweep


T = TypeVar("T")
Report = Annotated[Path | None, typer.Option(help="Folder whose results are written again; nothing is run.")]


def check_exclusive(resume: str | None, report: Path | None, others: Sequence[object]) -> None:
    """Raises `UserError` if `--resume` or `--report` is given with each other, or with another option."""
    if (resume or report) and (any(value is not None for value in others) or (resume and report)):
        raise UserError(f"{'--resume' if resume else '--report'}: it uses the stored settings; give no others.")


def open_folder(
    kind: type[TrialsManifest], name: str | None, runs: Path, resume: str | None = None, storage: str | None = None
) -> tuple[Path, str | None]:
    """A new folder in `runs`, named by the time without a name, or the folder to resume; and its storage.

    Raises `UserError` if a new folder exists, or trials cannot be resumed.
    """
    from seal_ray.run.storage import fetched
    from tuning.running import check_new_folder, check_resumable

    if resume is None:
        folder = runs / (name or time.strftime(f"{kind.COMMAND}-%Y%m%d-%H%M%S"))
        check_new_folder(folder, kind)
    else:
        folder, storage = fetched(resume, runs, storage)
        check_resumable(folder, kind)
    return folder, storage


def run_or_resume(
    console: Console,
    kind: type[TrialsManifest],
    start: Callable[..., None] | None,
    folder: Path,
    storage: str | None,
    *,
    read: Callable[[Path], TrialSet],
    write: Callable[[Path], T],
    on_end: Callable[[], None] = lambda: None,
) -> T:
    """Runs trials in a folder that is mirrored to a storage, connected to Ray, and writes their results.

    Args:
        kind: The manifest of the folder.
        start: Starts new trials in a folder; None to resume trials.
        read: Reads the trials for the progress display.
        write: Writes the results at the end, and returns them.
        on_end: Is called after each trial.
    """
    from seal_ray.run.cluster import connected
    from seal_ray.run.storage import mirrored
    from tuning.running import resume_trials

    say = partial(print_line, console)
    with live_panel(console) as panel, mirrored(folder, storage, say, new=start is not None) as push:

        def after_trial() -> None:
            on_end()
            push()

        on_event = event_printer(console, lambda: read(folder), on_end=after_trial, panel=panel)
        say(f"{kind.WHAT} {folder}: connecting to Ray")
        with connected():
            if start is None:
                resume_trials(folder, kind, on_event=on_event)
            else:
                start(folder, on_event=on_event)
        return write(folder)


def event_printer(
    console: Console,
    read: Callable[[], TrialSet],
    *,
    on_end: Callable[[], None] = lambda: None,
    panel: Panel | None = None,
) -> OnEvent:
    """Prints a line for every event, with the time that all remaining rounds need.

    Args:
        read: Reads the trials from their folder.
        on_end: Is called when a trial has ended or was given up.
        panel: Shows starts and rounds instead, with a row for each trial that is running.
    """
    from tuning.running import TrialEventKind

    started = time.monotonic()
    played = 0
    running: dict[str, str] = {}

    def line(event: TrialEvent) -> str:
        nonlocal played
        name = event.trial
        match event.kind:
            case TrialEventKind.STARTED:
                return f"{name}: started"
            case TrialEventKind.ROUND:
                played += 1
                return f"{name} {_round(event)}; {time_left()}"
            case TrialEventKind.RETRIED:
                return f"{name}: failed ({event.error}); resuming from its last checkpoint"
            case TrialEventKind.FAILED:
                return f"{name}: failed and given up ({event.error})"
            case TrialEventKind.ENDED:
                trials = read()
                trial = next(each for each in trials.trials if each.name == name)
                early = f"stopped early, after {trial.rounds} of {trials.manifest.rounds} rounds"
                return f"{name}: {'finished' if trial.state is State.FINISHED else early}"
            case TrialEventKind.STOPPING:
                return "stopping after the current rounds; interrupt again to stop at once"

    def time_left() -> str:
        missing, _, done = _rounds_left(read())
        return f"{done}, {minutes(missing * (time.monotonic() - started) / played)} left"

    def print_event(event: TrialEvent) -> None:
        if panel is not None:
            _show(panel, event, running, read())
        if panel is None or event.kind not in (TrialEventKind.STARTED, TrialEventKind.ROUND):
            print_line(console, line(event))
        if event.kind in (TrialEventKind.ENDED, TrialEventKind.FAILED):
            on_end()

    return print_event


def _show(panel: Panel, event: TrialEvent, running: dict[str, str], trials: TrialSet) -> None:
    """Shows the texts of running trials by name after an event, which changes them."""
    running.pop(event.trial, None)
    if event.kind.value in ("started", "retried", "round"):
        running[event.trial] = _round(event) if event.metrics else event.kind.value
    missing, rounds, done = _rounds_left(trials)
    rows = {"all": f"{done}, {len(running)} running", **dict(sorted(running.items()))}
    panel.show("rounds", rounds - missing, rounds, rows)


def _rounds_left(trials: TrialSet) -> tuple[int, int, str]:
    """The number of rounds that are left, of all rounds, and a text of the trials that are done."""
    rounds, ended = trials.manifest.rounds, (State.FINISHED, State.STOPPED, State.FAILED)
    left = [rounds - trial.rounds for trial in trials.trials if trial.state not in ended]
    missing = sum(left) + rounds * (trials.planned - len(trials.trials))
    return missing, rounds * trials.planned, f"{len(trials.trials) - len(left)} of {trials.planned} trials done"


def _round(event: TrialEvent) -> str:
    metrics = event.metrics
    text = f"round {metrics['round']:.0f}: {success_text(metrics)}"
    if "perf/evaluation_seconds" in metrics:
        text += f", evaluation {percent(metrics, 'evaluation/success')}"
    return f"{text}; {metrics['perf/round_seconds']:.0f} s"


def print_missing(console: Console, trials: Iterable[TrialRecord]) -> None:
    """Prints the trials that did not reach their end, with the reason."""
    for trial in trials:
        if trial.state not in (State.FINISHED, State.STOPPED):
            reason = f": {trial.failure}" if trial.failure else ""
            print_line(console, f"{trial.name} is in no number: {trial.state} after {trial.rounds} rounds{reason}")


def print_end(console: Console, trials: TrialSet) -> None:
    """Prints the command that resumes remaining trials. Raises `SealError` if some were given up."""
    resume = f"seal-ray {trials.manifest.COMMAND} --resume {trials.folder}"
    unfinished = any(trial.state in (State.UNFINISHED, State.NOT_STARTED) for trial in trials.trials)
    if unfinished or len(trials.trials) < trials.planned:
        print_line(console, f"stopped; resume with: {resume}")
    failed = [trial.name for trial in trials.trials if trial.state is State.FAILED]
    if failed:
        names = ", ".join(failed)
        raise SealError(
            f"{len(failed)} of {trials.planned} trials were given up ({names}); {resume} starts them again."
        )
