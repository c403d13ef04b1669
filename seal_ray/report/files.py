"""The files of a run (`RunFolder`), and atomic writing: a kill at any moment leaves the old content or the new one."""

import difflib
import json
import math
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from envs.errors import UserError
from envs.interface import Interface
from envs.interface.json_form import interface_from_dict, interface_to_dict
from envs.received import MAX_JSON_BYTES, MIB, check_no_links, opened, parse_json, validated, write_new, write_yaml
from envs.task import JSON
from envs.text import visible
from policies.trajectory import interface_id
from seal_ray.config.presets import read_settings
from seal_ray.metrics import bounds_of, check

MAX_ROUNDS = 10**7
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9_./ -]{0,119}$")]
"""The name of a metric, suite or category."""


def _check_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it holds control characters")
    return text


def _check_bounds(values: dict[str, float | None]) -> dict[str, float | None]:
    for name, value in values.items():
        least, most = bounds_of(name)
        if value is not None and not least <= value <= most:
            raise ValueError(f"{name} is not from {least:g} to {most:g}")
    return values


_TaskId = Annotated[str, Field(max_length=200), AfterValidator(_check_printable)]
_Suites = dict[_Name, dict[_Name, dict[_TaskId, Annotated[float, Field(ge=0, le=1)] | None]]]
"""Suite → category → task → its success; None for a lost dialogue."""


class RoundRow(BaseModel):
    """A row with a round."""

    model_config = ConfigDict(extra="allow", strict=True)
    round: int = Field(ge=0, le=MAX_ROUNDS)


class MetricsRow(RoundRow):
    """A round, and numbers or null under names; a share is from 0 to 1."""

    __pydantic_extra__: dict[_Name, float | None]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        _check_bounds(self.model_extra or {})
        return self


class EvaluationRow(RoundRow):
    """A round, and the outcome of each task of its evaluation."""

    suites: _Suites


class StartRow(BaseModel):
    """The numbers and outcomes of an evaluation, as rows of metrics and evaluations have them."""

    model_config = ConfigDict(strict=True)
    metrics: Annotated[dict[_Name, float | None], AfterValidator(_check_bounds)]
    suites: _Suites


class _ShownInterface(BaseModel):
    """An interface with its `id` and `number`."""

    model_config = ConfigDict(extra="allow", strict=True)
    id: str = ""
    number: int = 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        interface_from_dict(self.model_extra or {})
        return self


class InterfacesRow(RoundRow):
    """A round, and the interfaces that it played."""

    interfaces: list[_ShownInterface]


M = TypeVar("M", bound=BaseModel)

Row = Mapping[str, JSON]
"""A line of a file of metrics."""

WANDB_FOLDER = "wandb"
"""The folder of wandb's files in a run folder. It has links to logs elsewhere; nothing here reads it."""
TRIALS = "trials"
"""The folder of the trials' run folders in a sweep or comparison."""

_SHOWN_RUNS = 6
_UNCHANGED = frozenset((bool, int, str, type(None)))
"""Types of values that are JSON already. A dialogue's record has thousands of them, in lists."""
_MAX_ROWS_BYTES = 64 * MIB
"""Largest file that `JsonLines` reads."""
_LOGS, _CHECKPOINTS = "logs", "checkpoints"
_ROUND_LOG = re.compile(r"(?:round|evaluation)_(\d{6,})\.eval")


def replace_file(path: Path, content: bytes) -> None:
    """Writes the file atomically."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    write_new(new, content)
    os.replace(new, path)


def replace_folder(path: Path, new: Path) -> None:
    """Replaces the folder `path` by the folder `new`. After a kill, `settle_folder` finishes or undoes it."""
    old = _replaced(path)
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def settle_folder(path: Path) -> None:
    """Finishes or undoes a `replace_folder` that was killed."""
    if path.exists():
        shutil.rmtree(_replaced(path), ignore_errors=True)
    elif _replaced(path).exists():
        _replaced(path).rename(path)


def _replaced(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


def replace_yaml(path: Path, document: object) -> None:
    """Writes the document as YAML, atomically. Raises `TypeError` for values without a JSON form."""
    replace_file(path, write_yaml(as_json(document)).encode("utf-8"))


def as_json(value: object) -> JSON:
    """The value as plain JSON: tuples become lists, paths strings, and numbers that are not finite None.

    Raises `TypeError` for values without a JSON form.
    """
    if type(value) in _UNCHANGED:
        return value
    match value:
        case float():
            return float(value) if math.isfinite(value) else None
        case list() | tuple():
            kinds = set(map(type, value))
            if kinds <= _UNCHANGED or (kinds == {float} and all(map(math.isfinite, value))):
                return list(value)
            return [as_json(item) for item in value]
        case Mapping():
            return {str(key): as_json(item) for key, item in value.items()}
        case Path() | str():
            return str(value)
        case int():
            return int(value)
    raise TypeError(f"{value!r:.80} is of type {type(value).__name__}, which has no JSON form.")


@dataclass(frozen=True, slots=True)
class JsonLines:
    """A file of one JSON object a line, which need not exist. Reading skips a cut last line; writing removes it.

    Attributes:
        ascii: Whether to escape all other characters, so that no text breaks a line or its encoding.
        model: The form of the rows.
    """

    path: Path
    ascii: bool = True
    model: type[BaseModel] | None = None

    def lines(self) -> list[bytes]:
        # `str.splitlines` would split at U+2028 within a text too.
        return self._whole().split(b"\n")[:-1]

    def rows(self) -> list[dict[str, JSON]]:
        """The objects. Raises `UserError` with the number of a line that does not fit; others may have written it."""
        if self.path.exists() and self.path.stat().st_size > _MAX_ROWS_BYTES:
            raise UserError(f"{self.path} is larger than {_MAX_ROWS_BYTES:,} bytes.")
        rows = []
        for number, line in enumerate(self.lines(), 1):
            try:
                if len(line) > MAX_JSON_BYTES:
                    raise ValueError(f"it is longer than {MAX_JSON_BYTES:,} bytes")
                row = parse_json(line)
            except ValueError as error:
                raise UserError(f"{self.path}: line {number} is not valid JSON ({error}).") from None
            if not isinstance(row, dict):
                raise UserError(f"{self.path}: line {number} is no JSON object.")
            if self.model is not None:
                validated(self.model, row, f"{self.path}: line {number} does not fit")
            rows.append(row)
        return rows

    def append(self, row: Mapping[str, object]) -> None:
        """Adds one line. Raises `TypeError` for values without a JSON form, before anything is written."""
        line = self._line(row)
        with open(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o666), "a+b") as file:
            if file.tell():
                file.seek(-1, 2)
                if file.read() != b"\n":
                    file.truncate(len(self._whole()))
            file.write(line)

    def replace(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Replaces all lines, atomically."""
        replace_file(self.path, b"".join(map(self._line, rows)))

    def _whole(self) -> bytes:
        if not self.path.exists():
            return b""
        with opened(self.path) as file:
            content = file.read()
        return content[: content.rfind(b"\n") + 1]

    def _line(self, row: Mapping[str, object]) -> bytes:
        return (json.dumps(as_json(row), allow_nan=False, ensure_ascii=self.ascii) + "\n").encode()


class RunFolder:
    """The folder of a run, which is created if it does not exist.

    Raises `UserError` if it cannot be created, or holds a link.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = JsonLines(path / "metrics.jsonl", model=MetricsRow)
        """One row a round: `round` and the round's metrics."""
        self.evaluations = JsonLines(path / "evaluations.jsonl", model=EvaluationRow)
        """One row an evaluation: `round` and `suites`, suite → category → task → 1, 0, or null for a lost dialogue."""
        self.start = JsonLines(path / "start.jsonl", model=StartRow)
        """The evaluation before training, if another run has made it: one row, its `metrics` and `suites`."""
        self.interfaces = JsonLines(path / "interfaces.jsonl", model=InterfacesRow)
        """One row a round: `round` and the played `interfaces`, with their `id` and the `number` of their arm."""
        self.profiles = JsonLines(path / "profiles.jsonl", model=RoundRow)
        """One row a round: `round` and `profile`, the failure profile's JSON form."""
        self.proposals = JsonLines(path / "proposals.jsonl", model=RoundRow)
        """One row a round: `round` and the `proposals` of its window, with reward or rejection."""
        self.arms = JsonLines(path / "arms.jsonl", model=RoundRow)
        """One row a window of the curator: its last `round`, its `rounds`, and `arms` with their statistics."""
        self.drafts = JsonLines(path / "drafts.jsonl", model=RoundRow)
        """One row a round with a task writer: `round` and the `drafts` of its window, with reward or rejection."""
        self.pool = JsonLines(path / "pool.jsonl", model=RoundRow)
        """One row a window of the task writer: its last `round` and `tasks`, the pool with statistics."""
        self.logs = path / _LOGS
        """The folder of the dialogues in Inspect's format, one log a round and one an evaluation."""
        self.checkpoints = path / _CHECKPOINTS
        self.tensorboard = path / "tensorboard"
        self.wandb_id = path / "wandb_id"
        """The file that holds the id of the run's wandb run, while that is closed."""
        self.curves = path / "curves.png"
        self.page = path / "report.html"
        try:
            for folder in (path, self.logs, self.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run folder: {path} cannot be created ({error}).") from None
        check_no_links(path, leave_out=WANDB_FOLDER)

    def log_of(self, kind: str, round_number: int) -> Path:
        """The log of a "round", or of the "evaluation" after it."""
        return log_path(self.path, kind, round_number)

    def write_config(self, config: Mapping[str, object]) -> None:
        """Writes the resolved configuration. Raises `TypeError` for values without a JSON form."""
        replace_yaml(self.config, config)

    def read_config(self) -> dict[str, JSON]:
        """The configuration. Raises `UserError` if there is none, or values do not fit."""
        return read_settings(self.config)

    def append_metrics(self, round_number: int, metrics: Mapping[str, float | int]) -> None:
        """Adds the metrics of a round. Raises as `metrics.check` does."""
        check(metrics)
        self.metrics.append({"round": round_number, **metrics})

    def append_interfaces(self, round_number: int, arms: Mapping[int, Interface]) -> None:
        """Adds the interfaces of a round, by the number of their arm in the window."""
        rows = [{"number": n, "id": interface_id(arm), **interface_to_dict(arm)} for n, arm in sorted(arms.items())]
        self.interfaces.append({"round": round_number, "interfaces": rows})

    def truncate_after(self, round_number: int) -> None:
        """Removes the stored rows of later rounds, before a run resumes; checkpoints stay.

        Raises `UserError` for a file that cannot be read.
        """
        rounds = (self.metrics, self.evaluations, self.interfaces, self.proposals, self.arms, self.profiles)
        for lines in (*rounds, self.drafts, self.pool):
            if lines.path.exists():
                lines.replace(row for row in lines.rows() if row["round"] <= round_number)
        for path in self.logs.iterdir():
            match = _ROUND_LOG.fullmatch(path.name)
            if match and int(match[1]) > round_number:
                path.unlink()


def log_path(run: Path, kind: str, round_number: int) -> Path:
    """The path of a log in a run folder, which may not be there."""
    return run / _LOGS / f"{kind}_{round_number:06d}.eval"


def note_on_runs(path: Path) -> str:
    """A sentence for errors about a path that is no run: the runs of a comparison or sweep, or the nearest names."""
    trials = path / TRIALS
    if os.path.isdir(trials):  # False for names that are too long for a path
        runs = [str(trials / name) for name in sorted(os.listdir(trials))]
        more = f" and {len(runs) - _SHOWN_RUNS} more" if len(runs) > _SHOWN_RUNS else ""
        return f" It is a comparison or sweep; give one of its runs: {', '.join(runs[:_SHOWN_RUNS])}{more}."
    if not os.path.exists(path) and os.path.isdir(path.parent):
        runs = [each for each in os.listdir(path.parent) if os.path.isdir(path.parent / each / _CHECKPOINTS)]
        near = difflib.get_close_matches(path.name, runs, n=3)
        return visible(f" Did you mean {' or '.join(str(path.parent / name) for name in near)}?") if near else ""
    return ""


def read_windows(run: Path, file: str, model: type[M], proposer: str) -> list[M]:
    """The rows of a file of windows of a `proposer`. Raises `UserError` if there are none, or one does not fit."""
    if not (run / "config.yaml").is_file():
        raise UserError(f"run: {str(run)!r:.200} is no folder of a run; it holds no config.yaml.{note_on_runs(run)}")
    check_no_links(run, leave_out=WANDB_FOLDER)
    path = run / file
    rows = JsonLines(path, model=RoundRow).rows()
    if not rows:
        raise UserError(f"run: {str(run)!r:.200} has no {file}; no window of a {proposer} has ended in it.")
    return [validated(model, row, f"{path}: line {number} does not fit") for number, row in enumerate(rows, 1)]
