"""`JsonLines`: a file with one JSON object a line, whose last line a kill may have cut short."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from envs.errors import UserError
from envs.task import JSON
from seal_ray.report.files import as_json, replace_file


@dataclass(frozen=True, slots=True)
class JsonLines:
    """The file need not exist. Reading never changes it; a cut line is left out then, and removed by what writes."""

    path: Path

    def rows(self) -> list[dict[str, JSON]]:
        """The objects. Raises `UserError` naming the line for anything else."""
        rows = []
        # Bytes are split at line ends alone; `str.splitlines` would take U+2028 within a text for one.
        for number, line in enumerate(self._whole().split(b"\n")[:-1], 1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise UserError(f"{self.path}: line {number} is not valid JSON ({error}).") from None
            if not isinstance(row, dict):
                raise UserError(f"{self.path}: line {number} is no JSON object.")
            rows.append(row)
        return rows

    def append(self, row: Mapping[str, object]) -> None:
        """Adds one line. Raises `TypeError` for values without a JSON form, before anything is written."""
        line = _line(row)
        with self.path.open("a+b") as file:
            if file.tell():
                file.seek(-1, 2)
                if file.read() != b"\n":
                    file.truncate(len(self._whole()))
            file.write(line)

    def replace(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Makes these the file's lines, all or none."""
        replace_file(self.path, b"".join(map(_line, rows)))

    def _whole(self) -> bytes:
        content = self.path.read_bytes() if self.path.exists() else b""
        return content[: content.rfind(b"\n") + 1]


def _line(row: Mapping[str, object]) -> bytes:
    # In ASCII: no text, not even half of a surrogate pair, can break the line or its encoding.
    return (json.dumps(as_json(row), allow_nan=False) + "\n").encode("ascii")
