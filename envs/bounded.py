"""A process for code that is not ours: it gets JSON a line and answers JSON a line, and is ended where it does not.

What a model wrote reaches it as data only. The program limits itself (`envs/apibank/worker.py` is one). This side
bounds the time of an answer, gives the process an empty folder to run in and nothing of our environment, and ends it
together with its owner.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from envs.task import JSON

_START_S = 60.0


class BoundedProcess:
    """A program that is started when it is first asked. Safe to use from several threads; requests wait for each other.

    An answer may take `seconds`, the first one a minute. A request that ends the process, or that it has to be ended
    for, has no answer; the next one gets a new process.
    """

    def __init__(self, program: Callable[[], Sequence[str]], *, seconds: float) -> None:
        self._program = program
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., Any] = weakref.finalize(self, _nothing)
        self.ended = 0
        """Processes that ended over a request."""

    @property
    def pid(self) -> int | None:
        """The id of the process that runs; None where none does."""
        return None if self._process is None else self._process.pid

    def ask(self, request: Mapping[str, JSON]) -> Any:
        """The reply, a JSON value; None where the process ended instead, or had to be ended."""
        with self._lock:
            fresh = self._process is None
            process = self._process or self._start()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                process.stdin.flush()
                return json.loads(_line(process, _START_S if fresh else self._seconds))
            except (OSError, ValueError, EOFError):
                self.ended += 1
                self._close()
                return None

    def close(self) -> None:
        """Ends the process. The next request starts one anew."""
        with self._lock:
            self._close()

    def _start(self) -> subprocess.Popen[bytes]:
        home = tempfile.TemporaryDirectory(prefix="bounded_")
        self._process = subprocess.Popen(  # noqa: S603 - a program of ours
            self._program(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home.name,
            env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PATH": os.defpath},
            start_new_session=True,  # a Ctrl-C is for this process, which ends that one
        )
        self._end = weakref.finalize(self, _end, self._process, home)
        return self._process

    def _close(self) -> None:
        self._end()
        self._process = None


def _line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    """One line of what the process writes. Raises `EOFError` where it ends or takes longer."""
    assert process.stdout is not None
    deadline = time.monotonic() + seconds
    held = b""
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while not held.endswith(b"\n"):
            if not ready.select(max(0.0, deadline - time.monotonic())):
                raise EOFError
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                raise EOFError
            held += part
    return held


def _end(process: subprocess.Popen[bytes], home: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not read yet
                pipe.close()
    home.cleanup()


def _nothing() -> None:
    """What is to be ended before a process was started."""
