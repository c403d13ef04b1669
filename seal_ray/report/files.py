"""Writing whole files, so that a kill at any moment leaves the old content or the new one; and values as JSON."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

import yaml  # type: ignore[import-untyped]

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
