"""Drivers of trials in processes of their own: what they say, how they end, and killing them."""

import os
import subprocess
import sys
import time
from pathlib import Path

from tests.processes import kill_all, title, tree

PATIENCE = 300.0
_AGENTS = ("ray::DashboardAgent", "ray::RuntimeEnvAgent")


def drive(module: str, command: str, out: Path, *, cluster: str = "local") -> subprocess.Popen[str]:
    """Runs a driver module, which takes a command and a folder; without an address on a cluster of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", module, command, str(out)],
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "RAY_ADDRESS": cluster},
    )


def ended(process: subprocess.Popen[str], code: int = 0) -> str:
    """All else that it says until it ends with this exit code."""
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == code, said
    return said


def kill(process: subprocess.Popen[str]) -> None:
    """Kills the process alone, and waits until its cluster has noticed. Ray's agents take a minute: they are killed."""
    below = tree(process.pid)
    agents = [pid for pid in below if title(pid).startswith(_AGENTS)]
    process.kill()
    process.communicate()
    deadline = time.monotonic() + PATIENCE
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in below if pid not in agents):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    kill_all(pid for pid in agents if title(pid).startswith(_AGENTS))
