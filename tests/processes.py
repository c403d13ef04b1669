"""The processes that stand below one, for tests that end or measure all of them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def tree(root: int) -> list[int]:
    """The process of that id and all below it, parents first."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            below.setdefault(int(path.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(path.parent.name))
    found = [root]
    for pid in found:
        found += below.get(pid, [])
    return found
