"""What a trial has left behind in its run folder, and the marks of how it ended. No Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ValidationError

from envs.errors import UserError
from envs.task import JSON
from seal_ray.report.drawing import Row
from seal_ray.report.files import JsonLines, replace_file

D = TypeVar("D", bound=BaseModel)

_FAILURE, _ENDED = "failed.txt", "ended.txt"


class State(StrEnum):
    """How far a trial has come."""

    FINISHED = "finished"
    STOPPED = "stopped early"
    """Ended by a scheduler, because others did better."""
    UNFINISHED = "unfinished"
    """Interrupted or still running."""
    FAILED = "failed"
    """Given up after retries."""
    NOT_STARTED = "not started"


@dataclass(frozen=True, kw_only=True)
class TrialRecord:
    """One trial, by its run folder: `rows` of its metrics by round.

    `rounds` is how many it has finished; `failure` what it failed of. How far trials have come is read after every
    round; what else they left behind is read when it is asked for.
    """

    folder: Path
    state: State
    rounds: int
    rows: Sequence[Row]
    failure: str | None = None

    @cached_property
    def interfaces(self) -> Sequence[Row]:
        """What it showed, by round."""
        return JsonLines(self.folder / "interfaces.jsonl").rows()

    @cached_property
    def config(self) -> Mapping[str, JSON]:
        """Its settings, by section; empty where it has not written them down."""
        path = self.folder / "config.yaml"
        found = yaml.safe_load(path.read_bytes()) if path.is_file() else None
        return found if isinstance(found, dict) else {}

    @property
    def name(self) -> str:
        return self.folder.name

    @classmethod
    def read(cls, folder: Path, *, of_rounds: int, **more: Any) -> Self:
        """The trial in a run folder, which need not exist; it is finished after `of_rounds`. `more` are own fields."""
        # A retried trial can have been killed in between: of rows of one round the last counts.
        by_round = {row["round"]: row for row in JsonLines(folder / "metrics.jsonl").rows()}
        rows = [by_round[number] for number in sorted(by_round)]
        done = rows[-1]["round"] if rows else 0
        failure = folder / _FAILURE
        if done >= of_rounds:
            state = State.FINISHED
        elif failure.is_file():
            state = State.FAILED
        elif (folder / _ENDED).is_file():
            state = State.STOPPED
        else:
            state = State.UNFINISHED if rows else State.NOT_STARTED
        return cls(
            folder=folder,
            state=state,
            rounds=done,
            rows=rows,
            failure=failure.read_text("utf-8", "replace").strip() if state is State.FAILED else None,
            **more,
        )


def mark_started(trial: Path) -> None:
    """Takes back what the other marks wrote, if they did."""
    for name in (_FAILURE, _ENDED):
        (trial / name).unlink(missing_ok=True)


def mark_failed(trial: Path, reason: str) -> None:
    """Writes down that a trial was given up, and why."""
    trial.mkdir(parents=True, exist_ok=True)
    replace_file(trial / _FAILURE, reason.encode("utf-8"))


def mark_ended(trial: Path) -> None:
    """Writes down that a trial ended without a fault, after its last round or before."""
    trial.mkdir(parents=True, exist_ok=True)
    replace_file(trial / _ENDED, b"")


def read_document(path: Path, kind: type[D], *, what: str, command: str) -> D:
    """What `command` has written down of the trials in a folder. Raises `UserError` where it is no such folder."""
    if not path.is_file():
        raise UserError(f"{path.parent} is no {what}; give a folder that seal-ray {command} has made.")
    try:
        return kind.model_validate(yaml.safe_load(path.read_bytes()))
    except (OSError, yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(f"{path} cannot be read as a {what} ({reason}).") from None
