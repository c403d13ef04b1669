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

from pydantic import BaseModel, ConfigDict, Field

from envs.errors import UserError
from envs.received import read_bytes, read_yaml_as_json, validated
from envs.task import JSON
from envs.text import visible
from seal_ray.config.presets import read_settings
from seal_ray.report.files import JsonLines, Row, replace_file, replace_yaml
from seal_ray.report.rows import MAX_ROUNDS, check_evaluation, check_interfaces, check_metrics

_FAILURE, _ENDED = "failed.txt", "ended.txt"
_CONFIG, _METRICS, _EVALUATIONS, _INTERFACES = (
    *("config.yaml", "metrics.jsonl", "evaluations.jsonl", "interfaces.jsonl"),
)

EXAM = "exams/exam.json"
"""The results of `seal-ray exam` with `--out` exams in the run folder."""

_FAILURE_LENGTH = 500

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
        return JsonLines(self.folder / _INTERFACES, check=check_interfaces).rows()

    @cached_property
    def evaluations(self) -> Sequence[Row]:
        """What came of each task in its evaluations, by round."""
        return _by_round(JsonLines(self.folder / _EVALUATIONS, check=check_evaluation))

    @cached_property
    def config(self) -> Mapping[str, JSON]:
        """Its settings, by section; empty if it has none yet. Raises `UserError` as `read_settings` does."""
        path = self.folder / _CONFIG
        return read_settings(path) if path.is_file() else {}

    @property
    def name(self) -> str:
        return self.folder.name

    @classmethod
    def read(cls, folder: Path, *, of_rounds: int, **more: Any) -> Self:
        """The trial in a run folder, which need not exist; it is finished after `of_rounds`. `more` are own fields."""
        rows = _by_round(JsonLines(folder / _METRICS, check=check_metrics))
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
            failure=_failure(failure) if state is State.FAILED else None,
            **more,
        )


def _failure(path: Path) -> str:
    """What a trial failed of, in one line that is safe in a terminal."""
    return visible(" ".join(read_bytes(path).decode("utf-8", "replace").split()))[:_FAILURE_LENGTH]


def _by_round(lines: JsonLines) -> list[Row]:
    """The rows of a file. A retried trial can have been killed in between: of rows of one round the last counts."""
    by_round = {row["round"]: row for row in lines.rows()}
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

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    FILE: ClassVar[str]
    WHAT: ClassVar[str]
    COMMAND: ClassVar[str]
    rounds: int = Field(ge=1, le=MAX_ROUNDS)
    folder: str = Field(max_length=4096)

    def write(self, out: Path) -> None:
        """Writes down what is run in a folder."""
        replace_yaml(out / self.FILE, self.model_dump())

    @classmethod
    def read(cls, out: Path) -> Self:
        """What is run in a folder. Raises `UserError` where that was not made by the command."""
        path = out / cls.FILE
        if not path.is_file():
            raise UserError(f"{out} is no {cls.WHAT}; give a folder that seal-ray {cls.COMMAND} has made.")
        return validated(cls, read_yaml_as_json(path), f"{path} cannot be read as a {cls.WHAT}")


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Writes rows, the head first, in the place of any written before."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    replace_file(path, text.getvalue().encode("utf-8"))
