"""For tests that start processes: the ones below one, to end or measure all of them; ports, and waiting for servers."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from tests.startup.preloaded import fork_of

PROGRAM = (sys.executable, "-c", "from seal_ray.cli import main; main()")
"""The command `seal-ray`, in a process of its own."""


def seal_ray(*arguments: str, code: int = 0, cwd: Path | None = None, stdin: str = "", **variables: str) -> str:
    """The output of a command in its own process, which ends with this exit code; if it is not 0, only its errors."""
    environment = {**os.environ, **variables}
    done = subprocess.run(
        [*PROGRAM, *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stderr if code else done.stdout


def tree(root: int) -> list[int]:
    """The process of that id and all below it, parents first; a fork that computes for a process is below that one."""
    below: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            below.setdefault(int(path.read_text().rsplit(")", 1)[1].split()[1]), []).append(int(path.parent.name))
    found = [root]
    for pid in found:
        # A fork is below its server too, which may be among them.
        found += [each for each in (fork_of(pid), *below.get(pid, [])) if each is not None and each not in found]
    return found


def read_until(process: subprocess.Popen[str], words: str, *, times: int = 1) -> str:
    """The output up to the line with these words, printed so many times by then."""
    assert process.stdout is not None
    said = ""
    for line in process.stdout:
        said += line
        times -= words in line
        if not times:
            return said
    raise AssertionError(f"it never said {words!r}:\n{said}")


def title(pid: int) -> str:
    """The name of a process, Ray's actors by their classes; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text("utf-8", errors="replace")
    except OSError:
        return ""


def kill_all(pids: Iterable[int]) -> None:
    """Kills those of the processes that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def wait_for_answer(url: str, process: subprocess.Popen[Any], *, seconds: float = 90) -> None:
    """Until anything is answered at `url`. `AssertionError`: the process has ended, or it takes longer."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            httpx.get(url, timeout=2)
            return
        except httpx.TransportError:
            assert process.poll() is None, f"the server of {url} ended with {process.returncode}"
            assert time.monotonic() < deadline, f"nothing is answered at {url}"
            time.sleep(0.2)
