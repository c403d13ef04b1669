"""Inspect in an environment of its own: where its interpreter is, and playing dialogues with it."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from envs.errors import SealError, UserError
from policies.models.cache import cache_folder
from seal_ray.report.files import replace_file

VARIABLE = "SEAL_RAY_INSPECT"
"""The environment variable that names the interpreter."""
PACKAGES = ("inspect-evals", "inspect-ai")
_VERSIONS = f"import importlib.metadata as m, json; print(json.dumps({{p: m.version(p) for p in {PACKAGES!r}}}))"
LOG = "inspect.log"
"""The file of what Inspect says, in the folder of its job."""
_PROGRAM = Path(__file__).with_name("program.py")
_POLL = 0.5
_ENDING = 20.0
"""Seconds that Inspect gets to write its log."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python that has inspect-evals, and the versions of what matters there."""

    path: Path
    versions: Mapping[str, str]


def find_interpreter(given: str | None) -> Interpreter:
    """The interpreter of that path, or of the environment variable, or that `make inspect` has made.

    Raises `UserError` where there is none or it lacks the packages.
    """
    made = Path(sys.prefix) / "inspect" / "bin" / "python"
    named = given or os.environ.get(VARIABLE)
    path = Path(named) if named else made
    how = f"`make inspect` makes one, and --inspect or {VARIABLE} names another"
    if not path.is_file():
        raise UserError(f"inspect: {path} is no Python interpreter; {how}.")
    try:
        found = subprocess.run(  # noqa: S603 - the caller's own interpreter
            [str(path), "-I", "-c", _VERSIONS],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
            env=environment(),
        )
        return Interpreter(path.absolute(), json.loads(found.stdout))
    except (OSError, subprocess.SubprocessError, ValueError):
        raise UserError(f"inspect: {path} has no inspect-evals; {how}.") from None


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a process there: ours without what concerns our own Python."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in ours} | dict(more or {})


@dataclass(frozen=True, slots=True)
class InspectJob:
    """What is played, and where its logs lie.

    `turns` bounds the times that the user speaks, `calls` the answers of both sides, `retries` how often a request is
    tried again, `timeout` its seconds.
    """

    task: str
    folder: Path
    turns: int
    concurrent: int
    calls: int = 400
    retries: int = 6
    timeout: int = 600


@dataclass(frozen=True, slots=True)
class Sides:
    """Who plays, by names of Inspect's, and the environment variables that their providers read."""

    model: str
    user: str
    variables: Mapping[str, str]


class Inspecting:
    """A process that has read its job: `ids` are the tasks there are."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()
        self.ids: Sequence[str] = self._first()["ids"]

    def play(self, ids: Sequence[str], sides: Sides, check: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """What each of the dialogues came to, as they end. `check` is called often; what it raises ends all.

        Raises `SealError` in a sentence where a model can no longer be asked, or Inspect ends.
        """
        _send(self._process, {"ids": list(ids), **asdict(sides)})
        while True:
            check()
            try:
                line = self._lines.get(timeout=_POLL)
            except queue.Empty:
                continue
            if line is None:
                raise SealError(f"Inspect ended before its dialogues did; its log is {self._log}")
            said = json.loads(line)
            match said.pop("kind"):
                case "sample":
                    yield said
                case "done":
                    return
                case "failed":
                    check()
                    whose = "the user model" if said["who"] == "user" else "the model"
                    raise SealError(f"{whose} could not be asked any more ({said['why']})")
                case "broken":
                    raise SealError(f"Inspect cannot play ({said['why']}); its log is {self._log}")

    def _read(self, lines: IO[str] | None) -> None:
        assert lines is not None
        try:
            for line in lines:
                self._lines.put(line)
        except ValueError:
            pass  # it was closed
        self._lines.put(None)

    def _first(self) -> dict[str, Any]:
        line = self._lines.get()
        if line is None:
            raise SealError(f"Inspect could not load the tasks; its log is {self._log}")
        found: dict[str, Any] = json.loads(line)
        return found


def _send(process: subprocess.Popen[str], line: Mapping[str, Any]) -> None:
    """A process that has ended says so by the lines that it does not write."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()


def inspect_cache(folder: Path) -> Path:
    """Where Inspect keeps answers of the job in a folder: pickles, which a folder of somebody else must not bring."""
    return cache_folder() / "inspect" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:24]


@contextmanager
def inspecting(interpreter: Interpreter, job: InspectJob) -> Iterator[Inspecting]:
    """A process with this job, ended at the end of the block."""
    job.folder.mkdir(parents=True, exist_ok=True)
    log = job.folder / LOG
    cache = {"INSPECT_CACHE_DIR": str(inspect_cache(job.folder))}
    replace_file(log, b"")
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(  # noqa: S603 - our own file, by that interpreter
            [str(interpreter.path), "-I", str(_PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            encoding="utf-8",
            cwd=job.folder,
            env=environment(cache),
            start_new_session=True,  # Ctrl-C goes to the command alone, which ends this in good order
        )
    try:
        _send(process, {**asdict(job), "folder": str((job.folder / "logs").resolve())})
        yield Inspecting(process, log)
    finally:
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Lets the process write its log, then ends it."""
    try:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    finally:
        for pipe in (process.stdin, process.stdout):
            with suppress(OSError):
                assert pipe is not None
                pipe.close()
