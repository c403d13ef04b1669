"""Trials as their run folders record them, and the marks of how they ended. No Ray."""

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
from seal_ray.report.files import (
    MAX_ROUNDS,
    EvaluationRow,
    InterfacesRow,
    JsonLines,
    MetricsRow,
    Row,
    as_json,
    replace_file,
    replace_yaml,
)
from tuning.recipe import Sections, differences

_CONFIG, _METRICS, _EVALUATIONS, _INTERFACES, _FAILURE, _ENDED = (
    *("config.yaml", "metrics.jsonl", "evaluations.jsonl", "interfaces.jsonl", "failed.txt", "ended.txt"),
)
EXAM = "exams/exam.json"
"""The results of `seal-ray exam` with `--out` exams in the run folder."""
READ = (_CONFIG, _METRICS, _EVALUATIONS, _INTERFACES, "proposals.jsonl", "arms.jsonl", _FAILURE, _ENDED, EXAM)
"""The small files of a run folder that results are made of, the curator's among them; a trial need not have all."""
_FAILURE_LENGTH = 500


class State(StrEnum):
    """Progress of a trial."""

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
    """One trial, read from its run folder. Files that a progress display does not need are read on first use.

    Attributes:
        rounds: Rounds that it has finished.
        rows: Its metrics by round.
        failure: The error of a trial that was given up, in one line.
    """

    folder: Path
    state: State
    rounds: int
    rows: Sequence[Row]
    failure: str | None = None

    @cached_property
    def interfaces(self) -> Sequence[Row]:
        """The interfaces that it played, by round."""
        return JsonLines(self.folder / _INTERFACES, model=InterfacesRow).rows()

    @cached_property
    def evaluations(self) -> Sequence[Row]:
        """The outcome of each task in its evaluations, by round."""
        return _by_round(JsonLines(self.folder / _EVALUATIONS, model=EvaluationRow))

    @cached_property
    def config(self) -> Mapping[str, JSON]:
        """Its settings, by section; empty if it has none yet. Raises `UserError` as `read_settings` does."""
        path = self.folder / _CONFIG
        return read_settings(path) if path.is_file() else {}

    @property
    def name(self) -> str:
        return self.folder.name

    @classmethod
    def read(cls, folder: Path, *, planned_rounds: int, **more: Any) -> Self:
        """Reads the run folder of a trial, which need not exist. `more` are fields of a subclass."""
        rows = _by_round(JsonLines(folder / _METRICS, model=MetricsRow))
        done = rows[-1]["round"] if rows else 0
        failure = None
        if done >= planned_rounds:
            state = State.FINISHED
        elif (folder / _FAILURE).is_file():
            state = State.FAILED
            text = read_bytes(folder / _FAILURE).decode("utf-8", "replace")
            failure = visible(" ".join(text.split()))[:_FAILURE_LENGTH]
        elif has_ended(folder):
            state = State.STOPPED
        else:
            state = State.UNFINISHED if rows else State.NOT_STARTED
        return cls(folder=folder, state=state, rounds=done, rows=rows, failure=failure, **more)


def _by_round(lines: JsonLines) -> list[Row]:
    """The rows of a file. A trial that was killed and retried may have written a round twice: the last row counts."""
    by_round = {row["round"]: row for row in lines.rows()}
    return [by_round[number] for number in sorted(by_round)]


def mark_started(trial: Path) -> None:
    """Removes the marks of an earlier end."""
    for name in (_FAILURE, _ENDED):
        (trial / name).unlink(missing_ok=True)


def mark_failed(trial: Path, reason: str) -> None:
    _mark(trial, _FAILURE, reason)


def mark_ended(trial: Path) -> None:
    """Marks a trial as ended without a fault, after its last round or before."""
    _mark(trial, _ENDED)


def _mark(trial: Path, name: str, text: str = "") -> None:
    trial.mkdir(parents=True, exist_ok=True)
    replace_file(trial / name, text.encode("utf-8"))


def has_ended(trial: Path) -> bool:
    """Whether `mark_ended` has marked the trial."""
    return (trial / _ENDED).is_file()


class TrialsManifest(BaseModel):
    """The plan of a command that runs trials, stored in the file `FILE` of its folder.

    Attributes:
        WHAT: The noun for such a folder, in messages; `COMMAND` makes it.
        rounds: Rounds of each trial.
        folder: The absolute path at which it was started.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    FILE: ClassVar[str]
    WHAT: ClassVar[str]
    COMMAND: ClassVar[str]
    rounds: int = Field(ge=1, le=MAX_ROUNDS)
    folder: str = Field(max_length=4096)

    def write(self, out: Path) -> None:
        replace_yaml(out / self.FILE, self.model_dump())

    def check_resumable(self, out: Path) -> None:
        """Raises `UserError` if the trials cannot be resumed in this folder."""
        if str(out.resolve()) != self.folder:
            raise UserError(f"{out} was started as {self.folder}; move it back there to resume it.")

    @classmethod
    def read(cls, out: Path) -> Self:
        """Reads the plan of a folder. Raises `UserError` if the command did not make it."""
        path = out / cls.FILE
        if not path.is_file():
            raise UserError(f"{out} is no {cls.WHAT}; give a folder that seal-ray {cls.COMMAND} has made.")
        return validated(cls, read_yaml_as_json(path), f"{path} cannot be read as a {cls.WHAT}")


def write_csv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    """Writes rows, the head first."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    replace_file(path, text.getvalue().encode("utf-8"))


_DECISIVE = ("environment", "engine", "solver", "evaluation")
"""Sections on which an evaluation before training depends; it is greedy, and does not depend on the seed."""


def evaluation_differences(config: Sections, settings: Sections) -> list[tuple[str, tuple[Any, Any]]]:
    """The settings by which evaluations before training differ, of a stored config and of `settings`."""
    ours = {section: as_json(settings[section]) for section in _DECISIVE}
    return list(differences({section: config.get(section) for section in _DECISIVE}, ours))


def initial_evaluation(trial: TrialRecord) -> Row | None:
    """The `metrics` and `suites` of a trial's evaluation before training; None if it has none."""
    # A trial that was killed in between has the one file without the other.
    if not all(rows and rows[0]["round"] == 0 for rows in (trial.evaluations, trial.rows)):
        return None
    row = trial.rows[0].items()  # a metric that is not a finite number is null
    metrics = {name: value for name, value in row if name.startswith("evaluation/") and value is not None}
    return {"metrics": metrics, "suites": trial.evaluations[0]["suites"]}


def neighbour_evaluation(folder: Path, settings: Sections) -> tuple[Row, Path] | None:
    """The evaluation before training, and the folder, of a trial in the same parent folder and with equal settings."""
    for other in sorted(folder.parent.iterdir()):
        if other.is_dir() and other != folder:
            trial = TrialRecord.read(other, planned_rounds=1)
            evaluation = initial_evaluation(trial)
            if evaluation is not None and not evaluation_differences(trial.config, settings):
                return evaluation, other
    return None
