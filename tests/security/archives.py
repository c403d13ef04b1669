"""Packed comparisons as an attacker would make them."""

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path


def member(
    name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    """A header and its content."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, content


def pack(path: Path, members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> Path:
    """Writes a .tar.xz file of these members, however little they fit together."""
    with tarfile.open(path, "w:xz") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return path
