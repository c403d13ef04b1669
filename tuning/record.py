"""What a trial has left behind in its run folder, and the marks of how it ended. No Ray."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml  # type: ignore[import-untyped]
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from envs.errors import UserError
from envs.task import JSON
from seal_ray.report.files import JsonLines, Row, replace_file, replace_yaml

_FAILURE, _ENDED = "failed.txt", "ended.txt"
_CONFIG, _METRICS, _EVALUATIONS, _INTERFACES = (
    *("config.yaml", "metrics.jsonl", "evaluations.jsonl", "interfaces.jsonl"),
)

EXAM = "exams/exam.json"
"""The results of `seal-ray exam` with `--out` exams in the run folder."""

READ = (_CONFIG, _METRICS, _EVALUATIONS, _INTERFACES, _FAILURE, _ENDED, EXAM)
"""The files of a run folder that are read here, all of them small; a trial need not have each."""


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
        return JsonLines(self.folder / _INTERFACES).rows()

    @cached_property
    def evaluations(self) -> Sequence[Row]:
        """What came of each task in its evaluations, by round."""
        return _by_round(self.folder / _EVALUATIONS)

    @cached_property
    def config(self) -> Mapping[str, JSON]:
        """Its settings, by section; empty where it has written none down. Raises `UserError` for what is no YAML."""
        path = self.folder / _CONFIG
        try:
            found = yaml.safe_load(path.read_bytes()) if path.is_file() else None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read ({str(error).splitlines()[0]}).") from None
        return found if isinstance(found, dict) else {}

    @property
    def name(self) -> str:
        return self.folder.name

    @classmethod
    def read(cls, folder: Path, *, of_rounds: int, **more: Any) -> Self:
        """The trial in a run folder, which need not exist; it is finished after `of_rounds`. `more` are own fields."""
        rows = _by_round(folder / _METRICS)
        done = rows[-1]["round"] if rows else 0
        failure = folder / _FAILURE
        if done >= of_rounds:
            state = State.FINISHED
        elif failure.is_file():
            state = State.FAILED
        elif has_ended(folder):
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


def _by_round(path: Path) -> list[Row]:
    """The rows of a file. A retried trial can have been killed in between: of rows of one round the last counts."""
    by_round = {row["round"]: row for row in JsonLines(path).rows()}
    return [by_round[number] for number in sorted(by_round)]


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


def has_ended(trial: Path) -> bool:
    """Whether that was written down."""
    return (trial / _ENDED).is_file()


class TrialsManifest(BaseModel):
    """What a command runs, kept in the file `FILE` of its folder, which holds `WHAT`; `COMMAND` made it.

    `rounds` are those of each trial; `folder` is where it was started, as an absolute path.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    FILE: ClassVar[str]
    WHAT: ClassVar[str]
    COMMAND: ClassVar[str]
    rounds: int = Field(ge=1)
    folder: str

    def write(self, out: Path) -> None:
        """Writes down what is run in a folder."""
        replace_yaml(out / self.FILE, self.model_dump())

    @classmethod
    def read(cls, out: Path) -> Self:
        """What is run in a folder. Raises `UserError` where that was not made by the command."""
        path = out / cls.FILE
        if not path.is_file():
            raise UserError(f"{out} is no {cls.WHAT}; give a folder that seal-ray {cls.COMMAND} has made.")
        try:
            return cls.model_validate(yaml.safe_load(path.read_bytes()))
        except (OSError, yaml.YAMLError, UnicodeDecodeError, ValidationError) as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{path} cannot be read as a {cls.WHAT} ({reason}).") from None


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Writes rows, the head first, in the place of any written before."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    replace_file(path, text.getvalue().encode("utf-8"))
