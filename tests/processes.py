"""For tests that start processes: the ones below one, to end or measure all of them, and a port to listen at."""

from __future__ import annotations

import socket
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


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port
