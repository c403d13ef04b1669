"""Writing whole files, so that a kill at any moment leaves the old content or the new one; JSON values and lines."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml  # type: ignore[import-untyped]

from envs.errors import UserError
from envs.task import JSON


def replace_file(path: Path, content: bytes) -> None:
    """Puts a file with this content in the place of `path`."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    os.replace(new, path)


def replace_yaml(path: Path, document: object) -> None:
    """Puts the document in the place of `path`, as YAML. Raises `TypeError` for what has no JSON form."""
    text = yaml.safe_dump(as_json(document), sort_keys=False, allow_unicode=True)
    replace_file(path, text.encode("utf-8"))


def as_json(value: object) -> JSON:
    """The value as plain JSON: tuples are lists, paths are strings, and a number that is not finite is None.

    Raises `TypeError` for what has no JSON form.
    """
    match value:
        case None | bool():
            return value
        case str():
            return str(value)
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case Path():
            return str(value)
        case Mapping():
            return {str(key): as_json(item) for key, item in value.items()}
        case list() | tuple():
            return [as_json(item) for item in value]
    raise TypeError(f"{value!r:.80} is of type {type(value).__name__}, which has no JSON form.")


@dataclass(frozen=True, slots=True)
class JsonLines:
    """The file need not exist. Reading never changes it; a cut line is left out then, and removed by what writes."""

    path: Path
    ascii: bool = True
    """In ASCII no text, not even half of a surrogate pair, can break a line or its encoding."""

    def lines(self) -> list[bytes]:
        """The lines as they are."""
        # Bytes are split at line ends alone; `str.splitlines` would take U+2028 within a text for one.
        return self._whole().split(b"\n")[:-1]

    def rows(self) -> list[dict[str, JSON]]:
        """The objects. Raises `UserError` naming the line for anything else."""
        rows = []
        for number, line in enumerate(self.lines(), 1):
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
        line = self._line(row)
        with self.path.open("a+b") as file:
            if file.tell():
                file.seek(-1, 2)
                if file.read() != b"\n":
                    file.truncate(len(self._whole()))
            file.write(line)

    def replace(self, rows: Iterable[Mapping[str, object]]) -> None:
        """Makes these the file's lines, all or none."""
        replace_file(self.path, b"".join(map(self._line, rows)))

    def _whole(self) -> bytes:
        content = self.path.read_bytes() if self.path.exists() else b""
        return content[: content.rfind(b"\n") + 1]

    def _line(self, row: Mapping[str, object]) -> bytes:
        return (json.dumps(as_json(row), allow_nan=False, ensure_ascii=self.ascii) + "\n").encode()
