"""The modules and databases of an API-Bank folder, as texts: the published ones by their SHA-256, others on trust."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from envs.errors import UserError
from envs.received import read_bytes
from envs.trusting import require_trust

_MAX_BYTES = 50_000_000
"""Bytes that a folder's files may have together; the published ones have 1,000,000."""


def read_program(folder: Path) -> dict[str, dict[str, str]]:
    """The texts of the folder's `sources` and `databases`, by the names of the files without their suffix.

    Raises `UserError` for unpublished files that the user does not trust, and for files that are no text.
    """
    files = {"sources": "apis/*.py", "databases": "init_database/*.json"}
    content = {kind: dict(_files(folder, pattern)) for kind, pattern in files.items()}
    if sum(len(data) for each in content.values() for data in each.values()) > _MAX_BYTES:
        raise UserError(f"api-bank: the files in {folder} have more than {_MAX_BYTES:,} bytes; it is no API-Bank.")
    known = _published()
    changed = [
        str(path.relative_to(folder))
        for each in content.values()
        for path, data in each.items()
        if known.get(path.relative_to(folder).as_posix()) != hashlib.sha256(data).hexdigest()
    ]
    if changed:
        require_trust(f"files that are not the published ones, such as {changed[0]}", str(folder))
    try:
        return {
            kind: {path.stem: data.decode("utf-8-sig") for path, data in each.items()} for kind, each in content.items()
        }
    except UnicodeDecodeError as error:
        raise UserError(f"api-bank: a file in {folder} is no UTF-8 text ({error}).") from None


def _files(folder: Path, pattern: str) -> Iterator[tuple[Path, bytes]]:
    for path in sorted(folder.glob(pattern)):
        if path.stem != "__init__":
            yield path, read_bytes(path, "api-bank", _MAX_BYTES)


def _published() -> Mapping[str, str]:
    """File → SHA-256, as `sha256sum` writes them."""
    lines = Path(__file__).with_name("published.sha256").read_text("utf-8").splitlines()
    return {name: digest for digest, name in map(str.split, lines)}
