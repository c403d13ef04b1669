"""A child process for code of third parties: one JSON value per line in, one per line out.

Model text reaches it as data only. The program limits itself (see `envs/line_server.py`). This side bounds the time and
the length of an answer, gives the process an empty folder and an empty environment, and ends it together with itself.
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from envs.task import JSON

_START_S = 60.0
_MAX_ANSWER = 1 << 26
"""Bytes of an answer."""


def program_of(module: str, *packages: str) -> tuple[str, ...]:
    """The command that calls `main` of a module of this project.

    It can import the packages next to the named ones, and no others.
    """
    folders = [str(Path(__file__).resolve().parents[1])]
    for name in packages:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        folders.append(str(Path(spec.origin).parents[1]))
    code = f"import sys; sys.path += {list(dict.fromkeys(folders))}; from {module} import main; main()"
    return (sys.executable, "-P", "-s", "-S", "-B", "-c", code)


class BoundedProcess:
    """A program that starts with its first request. Thread-safe; requests are answered one after the other.

    A request that ends the process, or takes too long, has no answer; the next one starts a new process.

    `seconds` limits an answer; the first one has a minute. `first` is written to each process before its first request,
    and is not answered.
    """

    def __init__(
        self, program: Callable[[], Sequence[str]], *, seconds: float, first: Mapping[str, JSON] | None = None
    ) -> None:
        self.program = program
        self._first = b"" if first is None else json.dumps(first).encode() + b"\n"
        self.seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._end: Callable[[], object] = lambda: None
        self.ended = 0
        """Processes that ended over a request."""

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def ask(self, request: Mapping[str, JSON]) -> Any:
        """The reply, a JSON value; None if the process ended instead, or had to be ended."""
        with self._lock:
            fresh = self._process is None
            process = self._process or self._start()
            try:
                data = (self._first if fresh else b"") + json.dumps(request).encode() + b"\n"
                return json.loads(_answer(process, data, _START_S if fresh else self.seconds))
            except (OSError, ValueError, EOFError, RecursionError):
                self.ended += 1
                self._close()
                return None

    def close(self) -> None:
        """Ends the process. The next request starts a new one."""
        with self._lock:
            self._close()

    def _start(self) -> subprocess.Popen[bytes]:
        home = tempfile.TemporaryDirectory(prefix="bounded_")
        libraries = {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}
        self._process = subprocess.Popen(  # noqa: S603 - a program of ours
            self.program(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home.name,
            env={"PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PATH": os.defpath, **libraries},
            start_new_session=True,  # a Ctrl-C is for this process, which ends that one
        )
        self._end = weakref.finalize(self, _end, self._process, home)
        return self._process

    def _close(self) -> None:
        self._end()
        self._process = None


def _answer(process: subprocess.Popen[bytes], data: bytes, seconds: float) -> bytes:
    """Writes a request and returns the line that answers it; ends a process that takes too long. Raises without one."""
    assert process.stdin is not None
    assert process.stdout is not None
    held = bytearray()
    deadline = threading.Timer(seconds, process.kill)
    deadline.start()
    try:
        process.stdin.write(data)
        process.stdin.flush()
        while not held.endswith(b"\n"):
            part = os.read(process.stdout.fileno(), 1 << 16)
            held += part
            if not part or len(held) > _MAX_ANSWER:
                raise EOFError
    finally:
        deadline.cancel()
    return bytes(held)


def _end(process: subprocess.Popen[bytes], home: tempfile.TemporaryDirectory[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was not read yet
                pipe.close()
    home.cleanup()
