"""What both commands share: the folder that they work in, and what they say of their trials while these run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from envs.errors import SealError, UserError
from seal_ray.cli.train import minutes, percent
from tuning.record import State, TrialRecord

if TYPE_CHECKING:
    from tuning.running import OnEvent, TrialEvent


def check_alone(resume: str | None, report: Path | None, others: Sequence[object]) -> None:
    """Raises `UserError` where `--resume` or `--report` stands beside each other, or beside an option that is given."""
    if (resume or report) and (any(each is not None for each in others) or (resume and report)):
        raise UserError(f"{'--resume' if resume else '--report'}: it goes on with its own settings; give no others.")


def new_folder(out: Path | None, name: str | None, runs: Path, *, prefix: str) -> Path:
    """The folder for new trials, named by the time where neither it nor a name is given. Raises `UserError`."""
    if out is not None and name is not None:
        raise UserError("--out: it is the folder, and --name that in --runs; give one of them.")
    folder = out or runs / (name or time.strftime(f"{prefix}-%Y%m%d-%H%M%S"))
    if folder.exists():
        raise UserError(f"{folder} exists; go on with --resume {folder}, or give another folder.")
    return folder


@dataclass(frozen=True, slots=True)
class Standing:
    """How far trials have come: those that there are of `count`, each of so many `rounds`."""

    trials: Sequence[TrialRecord]
    count: int
    rounds: int


def teller(console: Console, read: Callable[[], Standing], *, push: Callable[[], None] = lambda: None) -> OnEvent:
    """What tells the events of trials: a line for each, and beside each round the time of all rounds that are left.

    `read` reads how far the trials have come; `push` is called whenever one has ended.
    """
    from tuning.running import TrialEventKind

    begun = time.monotonic()
    played = 0

    def tell(event: TrialEvent) -> None:
        nonlocal played
        at = event.trial
        match event.happening:
            case TrialEventKind.STARTED:
                text = f"{at}: started"
            case TrialEventKind.ROUND:
                played += 1
                text = f"{at} {_round(event)}; {time_left()}"
            case TrialEventKind.RETRIED:
                text = f"{at}: failed ({event.error}); it goes on from its last checkpoint"
            case TrialEventKind.FAILED:
                text = f"{at}: failed and given up ({event.error})"
            case TrialEventKind.ENDED:
                there = read()
                (found,) = [each for each in there.trials if each.name == at]
                early = f"stopped early, after {found.rounds} of {there.rounds} rounds"
                text = f"{at}: {'finished' if found.state is State.FINISHED else early}"
            case TrialEventKind.STOPPING:
                text = "stopping after the rounds under way; interrupt again to stop at once"
        console.print(text, soft_wrap=True, markup=False)
        if event.happening is TrialEventKind.ENDED:
            push()

    def time_left() -> str:
        ended = (State.FINISHED, State.STOPPED, State.FAILED)
        there = read()
        left = [there.rounds - each.rounds for each in there.trials if each.state not in ended]
        done = len(there.trials) - len(left)
        missing = sum(left) + there.rounds * (there.count - len(there.trials))
        seconds = missing * (time.monotonic() - begun) / played
        return f"{done} of {there.count} trials done, {minutes(seconds)} left"

    return tell


def _round(event: TrialEvent) -> str:
    metrics = event.metrics
    parts = [
        f"round {metrics['round']:.0f}: success {percent(metrics, 'solver/success')} "
        f"(plain {percent(metrics, 'solver/success_plain')}, shown {percent(metrics, 'solver/success_shown')})"
    ]
    if "perf/evaluation_seconds" in metrics:
        parts.append(f"evaluation {percent(metrics, 'evaluation/success')}")
    return f"{', '.join(parts)}; {metrics['perf/round_seconds']:.0f} s"


def tell_missing(console: Console, trials: Iterable[TrialRecord]) -> None:
    """Says of each trial that has not come to its end why it is in no number."""
    for trial in trials:
        if trial.state not in (State.FINISHED, State.STOPPED):
            reason = f": {trial.failure}" if trial.failure else ""
            text = f"{trial.name} is in no number: {trial.state} after {trial.rounds} rounds{reason}"
            console.print(text, soft_wrap=True, markup=False)


def tell_end(console: Console, standing: Standing, *, resume: str) -> None:
    """Says how to go on where trials are left; `resume` is the command. Raises `SealError` where some were given up."""
    trials, count = standing.trials, standing.count
    if len(trials) < count or any(each.state in (State.UNFINISHED, State.NOT_STARTED) for each in trials):
        console.print(f"stopped; go on with: {resume}", soft_wrap=True, markup=False)
    failed = [each.name for each in trials if each.state is State.FAILED]
    if failed:
        names = ", ".join(failed)
        raise SealError(f"{len(failed)} of {count} trials were given up ({names}); {resume} starts them again.")
