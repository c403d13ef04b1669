"""Processes that start with their libraries imported: forks of one that has imported them, as in a forkserver.

The imports of PyTorch and Transformers alone take a worker of Ray or a command of ours 4 seconds of a core, and tests
start hundreds of them. pytest starts a server (`Server`), which imports what such processes share, and notes which
environment variables that reads. A process that would be such a worker sends its command line, environment and
open files to the server (`take_over`, called by `sitecustomize`), which forks. The fork runs the command; the first
process waits for it, hands signals on, and ends as it ends. Where there is no server, or it cannot serve, since the
process has another value of such a variable or imports our code from another folder, the process starts as usual.

Not imported is Ray, whose core reads the number of a job from a variable when it is imported, and vLLM, which reads
variables that our code sets first in the process itself. The core of a vLLM engine is a process with an `LD_PRELOAD` of
its own: the first one has the server start another one for cores, in that environment, and waits for it.

A fork is below its server, not below the process that it computes for: `fork_of` finds it.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Set
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
ADDRESS = "SEAL_RAY_TESTS_PRELOADED"
"""The environment variable that names the server's socket."""
LIBRARIES = (
    "seal_ray",  # sets what OpenMP reads
    "torch",
    "torch._dynamo",
    "torch._inductor.lowering",
    "torch._inductor.standalone_compile",
    "transformers",
    "transformers.models.llama.modeling_llama",
    "transformers.models.qwen2.modeling_qwen2",
    "peft",
    "gymnasium",
    "openai.types.responses",
    "scipy.signal",
    # What Ray imports, and what of ours does not import Ray.
    "envs.co_evolution",
    "pandas",
    "policies.curator.llm",
    "policies.rollouts",
    "pyarrow.compute",
    "rich.pretty",
    "seal_ray.config.agents",
    "seal_ray.config.presets",
    "seal_ray.grpo.forward",
    "smart_open",
)
OF_CORES = (
    "vllm.v1.engine.core",
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.executor.uniproc_executor",
    "vllm.model_executor.models.llama",
    "vllm.model_executor.models.qwen2",
    "policies.engine.vllm_worker",
)
"""What the core of a vLLM engine imports."""
READ_BELOW_PYTHON = ("GOMP_", "LD_", "MKL_", "OMP_", "PYTHONHASHSEED", "TORCH_")
"""How variables begin that libraries read where Python does not see it."""
MAY_DIFFER = {"COLUMNS", "HF_HUB_OFFLINE", "HOME", "LINES", "PATH", "PS1", "PYTEST_CURRENT_TEST", "PYTHONPATH"}
"""Variables that libraries read again when they need them, for places where processes in tests have nothing, or to see
that they are tested; and two that a fork minds itself."""
LEFT_BY_CORES = {"LD_PRELOAD", "TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_CPP_DYNAMIC_THREADS"}
"""What vLLM sets for the core of an engine where it starts one, and what is started there later has without need."""
OF_WHO_STARTS_A_CORE = (
    *("CRC32C_", "PYTEST_", "PYTHONBREAKPOINT", "RAY_", "SEAL_RAY_", "SPT_NOENV"),
    *("VLLM_CPU_OMP_", "VLLM_ENFORCE_"),
)
"""How variables begin that differ between those who start a core of vLLM: some library copies all variables, but a core
reads these when it needs them or not at all."""
QUIET = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""What keeps libraries from starting threads when they are imported; a process with threads cannot be forked."""
WORKER = "ray/_private/workers/default_worker.py"
SPAWNED = "from multiprocessing.spawn import spawn_main"
PROGRAMS = (SPAWNED, "from seal_ray.cli import main; main()")
MODULES = {"tests.tuning.comparison.driver", "tests.tuning.sweep.driver"}
_SAFE_PATH = "-P"
_REFUSED = 0
_MOST_FILES = 200
_PATIENCE = 120.0
"""Seconds that a core waits until the server for cores has imported what it needs itself."""
_SPARE = 500  # numbers above those of any file that a process brings


def is_served(command: list[str]) -> bool:
    """Whether a command line starts a worker of Ray, a process that one spawns, or a command or a driver of ours."""
    options, what, rest = _parts(command)
    match what:
        case "-m":
            ours = rest[0] in MODULES
        case "-c":
            ours = rest[0].startswith(PROGRAMS)
        case _:
            ours = what.endswith(WORKER)
    return ours and options <= {"-u", "-B", _SAFE_PATH}


def is_core(command: list[str], environment: Mapping[str, str]) -> bool:
    """Whether a process that is served is the core of a vLLM engine."""
    return SPAWNED in " ".join(command) and "LD_PRELOAD" in environment


def fork_of(pid: int) -> int | None:
    """The fork that runs the command of this process; None where the process runs it itself."""
    if not (address := os.environ.get(ADDRESS)):
        return None
    try:
        return int(_note(address, pid).read_text())
    except (FileNotFoundError, ValueError):  # not one that waits, or only just
        return None


def _note(address: str, pid: int) -> Path:
    """The file that tells the fork for this process."""
    return Path(address).with_name(str(pid))


def for_cores(address: str) -> str:
    """The address of the server for cores, beside that of the first one."""
    return f"{address}-cores"


def _parts(command: list[str]) -> tuple[set[str], str, list[str]]:
    """Python's own options; the script's path, or `-c` or `-m`; and what follows."""
    options = list(takewhile(lambda part: part.startswith("-") and part not in ("-c", "-m"), command[1:]))
    what, *rest = command[1 + len(options) :] or [""]
    return set(options), what, rest


@contextmanager
def _noted() -> Iterator[set[str]]:
    """The names of the environment variables that are read meanwhile."""
    names: set[str] = set()
    kind = type(os.environ)
    read = kind.__getitem__

    def note(environment: os._Environ[str], name: str) -> str:
        names.add(os.fsdecode(name))  # some read bytes, by `os.environb`
        return read(environment, name)

    kind.__getitem__ = note  # type: ignore[method-assign]
    try:
        yield names
    finally:
        kind.__getitem__ = read  # type: ignore[method-assign]


def _alike(one: Mapping[str, str], other: Mapping[str, str], noted: Set[str], may_differ: Set[str]) -> bool:
    """Whether the variables that the libraries have read, or may have, are the same in both."""
    read = {*noted, *(name for name in {*one, *other} if name.startswith(READ_BELOW_PYTHON))}
    return all(one.get(name) == other.get(name) for name in read - may_differ)


def take_over(address: str) -> None:
    """Has a fork of a server run this process's command, and ends as that ends. Returns where that cannot be."""
    ours = next((Path(path) for path in sys.path if Path(path, "seal_ray").is_dir()), ROOT)
    if ours.resolve() != ROOT:  # a job brings its code in its working directory
        return
    refused = _ask(address)
    if refused and is_core(sys.orig_argv, os.environ):  # it has started a server for cores, if there was none
        until = time.monotonic() + _PATIENCE
        while not os.path.exists(for_cores(address)) and time.monotonic() < until:
            time.sleep(0.05)
        _ask(for_cores(address))


def _ask(address: str) -> bool:
    """Asks one server to take over. Returns only if it does not: whether it has refused."""
    with socket.socket(socket.AF_UNIX) as server:
        files = [int(name) for name in os.listdir("/proc/self/fd")]
        files = [file for file in files if file != server.fileno() and _is_open(file)]
        if len(files) > _MOST_FILES:
            return False
        request = {
            "command": sys.orig_argv,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "path": sys.path,
            "files": files,
            "group": os.getpgid(0),
        }
        body = json.dumps(request).encode()
        try:
            server.connect(address)
            socket.send_fds(server, [struct.pack("!I", len(body))], files)
            server.sendall(body)
            pid = _number(server)
        except OSError:  # not ready yet, or gone
            return False
        if not pid:
            return pid == _REFUSED
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: _send(pid, received))
        for file in files:
            os.close(file)
        code = _number(server)
        os._exit(1 if code is None else code)


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:  # that of the listing itself
        return False
    return True


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _number(connection: socket.socket) -> int | None:
    """The number that is sent next; None where the other side is gone."""
    got = connection.recv(4, socket.MSG_WAITALL)
    return int(struct.unpack("!I", got)[0]) if len(got) == 4 else None


class Server:
    """A server for the processes that this one starts, those below them included, until it is closed.

    Those that are started before it is ready start as usual.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="preloaded-")
        os.environ[ADDRESS] = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            [sys.executable, __file__, os.environ[ADDRESS]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **QUIET},
        )

    def wait(self) -> None:
        """Waits until it is ready."""
        assert self._process.stdout is not None
        self._process.stdout.read()  # it closes this then

    def close(self) -> None:
        del os.environ[ADDRESS]
        self._process.communicate()
        self._folder.cleanup()


class _Forks:
    """The server's loop."""

    def __init__(self, address: str, noted: Set[str], made: Mapping[str, str], *, of_cores: bool) -> None:
        self._address, self._noted, self._made, self._of_cores = address, noted, made, of_cores
        self._server_of_cores: subprocess.Popen[bytes] | None = None
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(address)
        self._listener.listen(64)
        self._asked: dict[int, tuple[int, socket.socket, Path]] = {}
        """By the file of a fork's process: its id, the connection to who waits for it, and the note that tells who."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "owner")
        self._selector.register(self._listener, selectors.EVENT_READ, "listener")

    def run(self) -> dict[str, Any] | None:
        """In each fork, what was asked of it. In the server None, at the end."""
        while True:
            for key, _ in self._selector.select():
                if key.data == "owner":
                    for pid, *_ in self._asked.values():
                        _send(pid, signal.SIGKILL)
                    return None
                if key.data == "listener":
                    if request := self._fork():
                        return request
                elif key.data == "fork":
                    self._ended(key.fd)
                elif key.data in self._asked:  # who waited for this fork has ended
                    _send(self._asked[key.data][0], signal.SIGKILL)
                    self._selector.unregister(key.fileobj)

    def close(self) -> None:
        """In a fork: lest the garbage collector closes files under numbers that are others' by then."""
        if self._server_of_cores is not None:
            assert self._server_of_cores.stdin is not None
            self._server_of_cores.stdin.close()
        self._selector.close()
        self._listener.close()
        for process, (_, connection, _) in self._asked.items():
            os.close(process)
            connection.close()

    def _fork(self) -> dict[str, Any] | None:
        connection, _ = self._listener.accept()
        head, files, _, _ = socket.recv_fds(connection, 4, _MOST_FILES)
        body = connection.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL)
        request: dict[str, Any] = json.loads(body)
        # What the libraries set when they are imported they would set in that process too.
        environment = {**self._made, **request["environment"]}
        core = is_core(request["command"], request["environment"])
        may_differ = MAY_DIFFER | QUIET.keys() | (set() if core else LEFT_BY_CORES)
        if not _alike(environment, os.environ, self._noted, may_differ):
            connection.sendall(struct.pack("!I", _REFUSED))
            connection.close()
            for file in files:
                os.close(file)
            if core:
                self._start_server_of_cores(request["environment"])
            return None
        pid = os.fork()
        if pid == 0:
            connection.close()
            request |= {"environment": environment, "received": files}
            return request
        for file in files:
            os.close(file)
        process = os.pidfd_open(pid)
        waiting, *_ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        note = _note(self._address, waiting)
        note.write_text(str(pid))
        self._asked[process] = (pid, connection, note)
        self._selector.register(process, selectors.EVENT_READ, "fork")
        self._selector.register(connection, selectors.EVENT_READ, process)
        connection.sendall(struct.pack("!I", pid))
        return None

    def _start_server_of_cores(self, environment: Mapping[str, str]) -> None:
        """Starts the server for cores, if there is none yet; it ends when this one does."""
        if self._server_of_cores is None and not self._of_cores:
            self._server_of_cores = subprocess.Popen(
                [sys.executable, __file__, for_cores(self._address)],
                stdin=subprocess.PIPE,
                env={**environment, **QUIET},
            )

    def _ended(self, process: int) -> None:
        pid, connection, note = self._asked.pop(process)
        note.unlink(missing_ok=True)
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(process)
        os.close(process)
        with suppress(KeyError):
            self._selector.unregister(connection)
        with suppress(OSError):
            connection.sendall(struct.pack("!I", os.waitstatus_to_exitcode(status) & 0xFF))
        connection.close()


def _become(request: dict[str, Any]) -> None:
    """Runs the command of a request in this process, with its files, folder and environment."""
    import fcntl

    spare = [fcntl.fcntl(file, fcntl.F_DUPFD, _SPARE) for file in request["received"]]
    os.closerange(0, _SPARE)  # the server's
    for file, number in zip(spare, request["files"], strict=True):
        os.dup2(file, number)
        os.close(file)
    with suppress(PermissionError):  # a group of another session
        os.setpgid(0, request["group"])  # when a worker has died, Ray ends all of its group
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    import huggingface_hub.constants as hub

    hub.HF_HUB_OFFLINE = os.environ.get("HF_HUB_OFFLINE", "").upper() in hub.ENV_VARS_TRUE_VALUES
    options, what, rest = _parts(request["command"])
    sys.orig_argv[:] = request["command"]
    sys.path[:] = request["path"]
    if what in ("-c", "-m"):
        sys.argv[:] = [what, *rest[1:]]
        if _SAFE_PATH not in options:
            sys.path.insert(0, "" if what == "-c" else request["folder"])
    if what == "-c":
        exec(rest[0], {"__name__": "__main__"})
    elif what == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = [what, *rest]
        sys.path.insert(0, str(Path(what).parent))
        runpy.run_path(what, run_name="__main__")


def main(address: str) -> None:
    of_cores = address == for_cores(os.environ[ADDRESS])
    given = set(os.environ)
    with _noted() as noted:
        for name in OF_CORES if of_cores else LIBRARIES:
            importlib.import_module(name)
    if of_cores:
        noted = {name for name in noted if not name.startswith(OF_WHO_STARTS_A_CORE)}
        import setproctitle

        setproctitle.getproctitle()  # finds where titles go, which it cannot in a fork that has other variables
    threads = os.listdir("/proc/self/task")
    if len(threads) > 1:
        raise RuntimeError("A library has started a thread, and a process with threads cannot be forked.")
    gc.collect()
    gc.freeze()
    made = {name: value for name, value in os.environ.items() if name not in given}
    forks = _Forks(address, noted, made, of_cores=of_cores)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # closes what its owner waits for
    if request := forks.run():
        forks.close()
        _become(request)


if __name__ == "__main__":
    main(sys.argv[1])
