"""Inspect in a separate environment: its interpreter, and a process that plays dialogues."""

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
"""The file of Inspect's output, in the folder of its job."""
_PROGRAM = Path(__file__).with_name("program.py")
_POLL = 0.5
_ENDING = 20.0
"""Seconds that Inspect gets to write its log."""


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python with inspect-evals, and the versions of `PACKAGES` there."""

    path: Path
    versions: Mapping[str, str]


def find_interpreter(given: str | None) -> Interpreter:
    """The interpreter of that path, of the environment variable, or of `make inspect`.

    Raises `UserError` if there is none or it lacks the packages.
    """
    named = given or os.environ.get(VARIABLE)
    path = Path(named) if named else Path(sys.prefix) / "inspect" / "bin" / "python"
    how = f"`make inspect` makes one, and --inspect or {VARIABLE} names another"
    if not path.is_file():
        raise UserError(f"inspect: {path} is no Python interpreter; {how}.")
    try:
        options: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 60}
        command = [str(path), "-I", "-c", _VERSIONS]
        versions = subprocess.run(command, env=environment(), **options).stdout  # noqa: S603 - the user's interpreter
        return Interpreter(path.absolute(), json.loads(versions))
    except (OSError, subprocess.SubprocessError, ValueError):
        raise UserError(f"inspect: {path} has no inspect-evals; {how}.") from None


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment variables of a process there, without our own Python's."""
    ours = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {name: value for name, value in os.environ.items() if name not in ours} | dict(more or {})


@dataclass(frozen=True, slots=True)
class InspectJob:
    """A task to play, and the folder of its logs.

    `turns` bounds the user's messages, `calls` the answers of both sides, `retries` those of a request, `timeout` its
    seconds.
    """

    task: str
    folder: Path
    turns: int
    concurrent: int
    calls: int = 400
    retries: int = 6
    timeout: int = 600


class Inspecting:
    """A process that has read its job: `ids` are the tasks there are."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, args=(process.stdout,), daemon=True).start()
        first = self._lines.get()
        if first is None:
            raise SealError(f"Inspect could not load the tasks; its log is {log}")
        self.ids: Sequence[str] = json.loads(first)["ids"]

    def play(self, ids: Sequence[str], sides: Mapping[str, Any], check: Callable[[], None]) -> Iterator[dict[str, Any]]:
        """Yields the outcomes of dialogues as they end. `check` is called often; its errors end everything.

        `sides` has the names of `model` and `user` in Inspect, and the environment `variables` of their providers.
        Raises `SealError` if a model does not answer any more, or Inspect ends.
        """
        _send(self._process, {"ids": list(ids), **sides})
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
                    raise SealError(f"{whose} can no longer be reached ({said['why']})")
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


def _send(process: subprocess.Popen[str], line: Mapping[str, Any]) -> None:
    """Writes a line. A process that has ended is noticed when its lines are read."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()


def inspect_cache(folder: Path) -> Path:
    """The folder of Inspect's cached answers of a job: pickles, which must not come with a received folder."""
    return cache_folder() / "inspect" / hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:24]


@contextmanager
def inspecting(interpreter: Interpreter, job: InspectJob) -> Iterator[Inspecting]:
    """A process with this job, which ends with the block."""
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
            start_new_session=True,  # Ctrl-C reaches only the command, which ends this one
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
