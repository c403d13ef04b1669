"""The files of a run: `RunFolder` says what lies where, and how it is kept right across kills.

Whole files are written so that a kill at any moment leaves the old content or the new one.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from envs.errors import UserError
from envs.interface import Interface
from envs.interface.document import interface_to_dict
from envs.received import MAX_JSON_BYTES, MIB, check_no_links, opened, parse_json, write_new, write_yaml
from envs.task import JSON
from policies.trajectory import interface_id
from seal_ray.config.presets import read_settings
from seal_ray.metrics import check
from seal_ray.report.rows import check_evaluation, check_interfaces, check_metrics, check_round, check_start

Row = Mapping[str, JSON]
"""A line of a file of metrics."""

WANDB_FOLDER = "wandb"
"""The folder of wandb's files in a run's, which links to its logs elsewhere; nothing here reads it."""
TRIALS = "trials"
"""The folder of the trials' run folders, in that of a sweep or a comparison."""

_UNCHANGED = frozenset((bool, int, str, type(None)))
"""Types of values that are JSON as they are. A dialogue's record has thousands of them, in lists."""
_MAX_ROWS_BYTES = 64 * MIB
"""Of a file of which all rows are read."""
_ROUND_FILE = re.compile(r"round_(\d{6,})\.jsonl")


def replace_file(path: Path, content: bytes) -> None:
    """Puts a file with this content in the place of `path`."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    write_new(new, content)
    os.replace(new, path)


def replace_folder(path: Path, new: Path) -> None:
    """Puts the folder `new` in the place of `path`. A kill in the midst leaves one of both, for `settle_folder`."""
    old = _replaced(path)
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    new.rename(path)
    shutil.rmtree(old, ignore_errors=True)


def settle_folder(path: Path) -> None:
    """Makes good what a kill in the midst of `replace_folder` has left: the old folder is put back, or it goes."""
    if path.exists():
        shutil.rmtree(_replaced(path), ignore_errors=True)
    elif _replaced(path).exists():
        _replaced(path).rename(path)


def _replaced(path: Path) -> Path:
    return path.with_name(f"{path.name}.old")


def replace_yaml(path: Path, document: object) -> None:
    """Puts the document in the place of `path`, as YAML. Raises `TypeError` for what has no JSON form."""
    replace_file(path, write_yaml(as_json(document)).encode("utf-8"))


def as_json(value: object) -> JSON:
    """The value as plain JSON: tuples are lists, paths are strings, and a number that is not finite is None.

    Raises `TypeError` for what has no JSON form.
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
    """The file need not exist. Reading never changes it; a cut line is left out then, and removed by what writes."""

    path: Path
    ascii: bool = True
    """In ASCII no text, not even half of a surrogate pair, can break a line or its encoding."""
    check: Callable[[Mapping[str, JSON]], None] | None = None
    """Raises `ValueError` for a row that does not fit."""

    def lines(self) -> list[bytes]:
        # Bytes are split at line ends alone; `str.splitlines` would take U+2028 within a text for one.
        return self._whole().split(b"\n")[:-1]

    def rows(self) -> list[dict[str, JSON]]:
        """The objects. Raises `UserError` naming the line for anything else, and for a file or line that is too long.

        Lines may be written by somebody else: see `envs/received.py`.
        """
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
            try:
                if self.check is not None:
                    self.check(row)
            except ValueError as error:
                raise UserError(f"{self.path}: line {number} does not fit ({str(error).rstrip('.')}).") from None
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
        """Makes these the file's lines, all or none."""
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
    """The folder of a run; it is created where it does not exist, and nothing in it is changed by opening it.

    Raises `UserError` if it cannot be created, or holds a link.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "config.yaml"
        """The resolved configuration."""
        self.metrics = JsonLines(path / "metrics.jsonl", check=check_metrics)
        """One row a round: `round` and the round's metrics."""
        self.evaluations = JsonLines(path / "evaluations.jsonl", check=check_evaluation)
        """One row an evaluation: `round` and `suites`, suite → category → task → 1, 0, or null where it was lost."""
        self.start = JsonLines(path / "start.jsonl", check=check_start)
        """The evaluation before training where another run has it: one row, its `metrics` and `suites`."""
        self.interfaces = JsonLines(path / "interfaces.jsonl", check=check_interfaces)
        """One row a round: `round` and `interfaces`, those shown, each with its `id` and its arm's `number`."""
        self.profiles = JsonLines(path / "profiles.jsonl", check=check_round)
        """One row a round: `round` and `profile`, the failure profile's JSON form."""
        self.proposals = JsonLines(path / "proposals.jsonl", check=check_round)
        """One row a round: `round` and `proposals` of the window it belongs to, with reward or rejection."""
        self.arms = JsonLines(path / "arms.jsonl", check=check_round)
        """One row a window of the curator, at its end: `round`, `rounds` and `arms`, each with what is known of it."""
        self.drafts = JsonLines(path / "drafts.jsonl", check=check_round)
        """One row a round where somebody writes tasks: `round` and `drafts` of the window, with reward or rejection."""
        self.pool = JsonLines(path / "pool.jsonl", check=check_round)
        """One row a window of the writer, at its end: `round` and `tasks`, the pool with what is known of each."""
        self.trajectories = path / "trajectories"
        """The folder of the stored trajectories, one file a round."""
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self.wandb_id = path / "wandb_id"
        """The file that holds the id of the run's wandb run."""
        self.curves = path / "curves.png"
        try:
            for folder in (path, self.trajectories, self.checkpoints):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"run folder: {path} cannot be created ({error}).") from None
        check_no_links(path, leave_out=WANDB_FOLDER)

    def trajectories_of(self, round_number: int) -> JsonLines:
        return JsonLines(self.trajectories / f"round_{round_number:06d}.jsonl")

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
        """Adds the interfaces shown in a round, each with its arm's number in the window."""
        shown = [{"number": at, "id": interface_id(arms[at]), **interface_to_dict(arms[at])} for at in sorted(arms)]
        self.interfaces.append({"round": round_number, "interfaces": shown})

    def truncate_after(self, round_number: int) -> None:
        """Drops all that was stored of later rounds, before a run goes on after `round_number`.

        Checkpoints are not touched. Raises `UserError` where a file holds something else.
        """
        rounds = (self.metrics, self.evaluations, self.interfaces, self.proposals, self.arms, self.profiles)
        for lines in (*rounds, self.drafts, self.pool):
            if lines.path.exists():
                lines.replace(row for row in lines.rows() if row["round"] <= round_number)
        for path in self.trajectories.iterdir():
            match = _ROUND_FILE.fullmatch(path.name)
            if match and int(match[1]) > round_number:
                path.unlink()
