"""Processes that start with their libraries imported: forks of one that has imported them, as in a forkserver.

The imports of PyTorch, Transformers, Ray and vLLM take a worker of Ray up to 10 seconds of a core, those of a command
of ours 6, and tests start hundreds of them. pytest starts a server (`Server`), which imports what such processes share,
and notes which environment variables that reads. A process that would be such a worker sends its command line,
environment and open files to the server (`preloaded_client.take_over`, called by `sitecustomize`), which has a fork run
the command; the first process waits for it, hands signals on, and ends as it ends. Where there is no server, or it
cannot serve, since the process has another value of such a variable, the process starts as usual. A process that has
our code in another folder, as a job that brought it, imports ours anew.

The server passes a request on to one of two kinds of further servers, which it starts when the first request needs one:

- Ray reads its settings and a worker's job from variables when it is imported: processes with the same ones are forks
  of a fork of the server that has imported Ray, RLlib and our algorithm with them, and for workers of a cluster's first
  job, most of which are engines and those around them, vLLM's front end.
- The core of a vLLM engine is a process with an `LD_PRELOAD` of its own: there is a server for cores with that.

A fork is below its server, not below the process that it computes for: `fork_of` finds it.
"""

import marshal
import os
import runpy
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.startup.preloaded_client import MOST_FILES, ROOT, SAFE_PATH, SPAWNED, parts, send
from tests.startup.preloaded_imports import (
    LIBRARIES,
    OF_CORES,
    QUIET,
    RAYLET,
    READ_LATER,
    Imported,
    import_these,
    with_ray,
)

ADDRESS = "SEAL_RAY_TESTS_PRELOADED"
"""The environment variable that names the server's socket."""
OURS = {"envs", "policies", "seal_ray", "tests", "tuning"}
LEFT_BY_CORES = {"LD_PRELOAD", "TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_CPP_DYNAMIC_THREADS"}
"""What vLLM sets for the core of an engine where it starts one, and what is started there later has without need."""
OF_ONE_WORKER = {RAYLET, "RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH", "RAY_CLIENT_MODE", "RAY_NODE_ID"}
"""Variables of Ray that do not keep two processes from being forks of one. Whether its raylet lives is what a worker
asks for again and again by an id that it read when Ray was imported: the first process of a worker minds that."""
_COMMAND = (sys.executable, "-m", "tests.startup.preloaded", "_" * 200)
"""What starts a server. The title of a fork has the room that its server's command line takes, hence the last part."""
_REFUSED = 0
_LONGEST = 1 << 20
_SPARE = 500  # numbers above those of any file that a process brings

_Kind = tuple[tuple[str, str], ...]
"""The variables of a server: variables of Ray and their values, or `_CORES`."""
_CORES: _Kind = (("LD_PRELOAD", ""),)


def fork_of(pid: int) -> int | None:
    """The fork that runs the command of this process; None where the process runs it itself."""
    if not (address := os.environ.get(ADDRESS)):
        return None
    try:
        return int(_note(address, pid).read_text())
    except (FileNotFoundError, ValueError):  # not one that waits, or only just
        return None


def _note(address: str, pid: int) -> Path:
    """The file that names the fork for this process."""
    return Path(address).with_name(str(pid))


class Server:
    """A server for the processes that this one starts, those below them included, until it is closed.

    Those that are started before it is ready start as usual.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="preloaded-")
        os.environ[ADDRESS] = str(Path(self._folder.name) / "socket")
        self._process = subprocess.Popen(
            _COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, **QUIET}
        )

    def wait(self) -> None:
        """Waits until it is ready."""
        assert self._process.stdout is not None
        self._process.stdout.read()  # it closes this then

    def close(self) -> None:
        del os.environ[ADDRESS]
        self._process.communicate()
        self._folder.cleanup()


@dataclass(frozen=True, slots=True)
class _Request:
    """The request of a first process, with the connection on which it waits."""

    connection: socket.socket
    files: list[int]
    """The numbers here of the files that it brings."""
    body: bytes
    what: dict[str, Any]
    """Its command, environment, folder and so on, as `preloaded_client` sends them."""

    def close(self) -> None:
        self.connection.close()
        for file in self.files:
            os.close(file)

    def refuse(self) -> None:
        with suppress(OSError):
            self.connection.sendall(struct.pack("!I", _REFUSED))
        self.close()


@dataclass(frozen=True, slots=True)
class _Start:
    """In a fork of the server: what it serves from now on, and the channel on which requests are passed on to it."""

    channel: socket.socket
    environment: dict[str, str]


class _Forks:
    """A server's loop: the first one's, with a listener, or that of one to which requests are passed on."""

    def __init__(self, source: socket.socket, imported: Imported, may_differ: Set[str], *, passes_on: bool) -> None:
        self._source, self._imported, self._may_differ, self._passes_on = source, imported, may_differ, passes_on
        self._servers: dict[_Kind, socket.socket] = {}
        """The channels to the servers that this one has started."""
        self._asked: dict[int, tuple[int, socket.socket, Path]] = {}
        """By the file of a fork's process: its id, the connection to the waiting process, and its note."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(source, selectors.EVENT_READ, "source")
        if passes_on:
            self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, "owner")

    def run(self) -> _Request | _Start | None:
        """In each fork, its request. In the server None, at the end."""
        while True:
            for key, _ in self._selector.select():
                if key.data == "owner":
                    self._end()
                    return None
                if key.data == "source":
                    if (request := self._receive()) is None:
                        self._end()
                        return None
                    if task := self._serve(request):
                        return task
                elif key.data == "fork":
                    self._ended(key.fd)
                elif key.data in self._asked and self._asked[key.data][1] is key.fileobj:
                    send(self._asked[key.data][0], signal.SIGKILL)  # who waited for this fork has ended
                    self._selector.unregister(key.fileobj)

    def close(self) -> None:
        """In a fork: lest the garbage collector closes files under numbers that are others' by then."""
        self._selector.close()
        self._source.close()
        for channel in self._servers.values():
            channel.close()
        for process, (_, connection, _) in self._asked.items():
            os.close(process)
            connection.close()

    def _end(self) -> None:
        for pid, *_ in self._asked.values():
            send(pid, signal.SIGKILL)
        for channel in self._servers.values():
            channel.close()  # which ends them
        with suppress(ChildProcessError):
            while True:
                os.wait()

    def _receive(self) -> _Request | None:
        """The next request; None where no more can come."""
        if self._passes_on:
            connection, _ = self._source.accept()
            head, files, _, _ = socket.recv_fds(connection, 4, MOST_FILES)
            body = connection.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL)
        else:
            body, received, _, _ = socket.recv_fds(self._source, _LONGEST, MOST_FILES + 1)
            if not body:
                return None
            connection, files = socket.socket(fileno=received[0]), received[1:]
        return _Request(connection, files, body, marshal.loads(body))

    def _serve(self, request: _Request) -> _Request | _Start | None:
        environment = request.what["environment"]
        spawned = SPAWNED in " ".join(request.what["command"])
        if self._passes_on and spawned and "LD_PRELOAD" in environment:
            if _CORES not in self._servers:
                self._start_server_of_cores(environment)
            self._pass_on(request, _CORES)
            return None
        if not self._imported.suits(environment, self._may_differ):
            request.refuse()
            return None
        # The libraries would set the same on import in that process.
        environment.update({**self._imported.made, **environment})
        if spawned or not self._passes_on:
            return self._fork(request)
        kind = tuple(
            sorted((name, environment[name]) for name in environment.keys() - OF_ONE_WORKER if name.startswith("RAY_"))
        )
        if kind not in self._servers:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork() == 0:
                ours.close()
                request.close()
                return _Start(theirs, environment)
            theirs.close()
            self._servers[kind] = ours
        self._pass_on(request, kind)
        return None

    def _pass_on(self, request: _Request, kind: _Kind) -> None:
        try:
            socket.send_fds(self._servers[kind], [request.body], [request.connection.fileno(), *request.files])
        except OSError:  # it has ended
            request.refuse()
        else:
            request.close()

    def _fork(self, request: _Request) -> _Request | None:
        pid = os.fork()
        if pid == 0:
            request.connection.close()
            return request
        for file in request.files:
            os.close(file)
        process = os.pidfd_open(pid)
        waiting, *_ = struct.unpack("3i", request.connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        note = _note(os.environ[ADDRESS], waiting)
        note.write_text(str(pid))
        self._asked[process] = (pid, request.connection, note)
        self._selector.register(process, selectors.EVENT_READ, "fork")
        self._selector.register(request.connection, selectors.EVENT_READ, process)
        with suppress(OSError):  # who asked has ended meanwhile, which the next event says
            request.connection.sendall(struct.pack("!I", pid))
        return None

    def _start_server_of_cores(self, environment: Mapping[str, str]) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server_of_cores = subprocess.Popen(
            [*_COMMAND, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**environment, **QUIET},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._servers[_CORES] = ours

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


def _become(request: dict[str, Any], received: list[int]) -> None:
    """Runs the command of a request in this process, with its files, folder and environment."""
    import fcntl

    spare = [fcntl.fcntl(file, fcntl.F_DUPFD, _SPARE) for file in received]
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
    import numpy as np

    np.random.seed()  # it would draw what others draw
    hub.HF_HUB_OFFLINE = os.environ.get("HF_HUB_OFFLINE", "").upper() in hub.ENV_VARS_TRUE_VALUES
    if request["own_code"]:
        for name in [name for name in sys.modules if name.partition(".")[0] in OURS]:
            del sys.modules[name]
    options, what, rest = parts(request["command"])
    sys.orig_argv[:] = request["command"]
    sys.path[:] = request["path"]
    if what in ("-c", "-m"):
        sys.argv[:] = [what, *rest[1:]]
        if SAFE_PATH not in options:
            sys.path.insert(0, "" if what == "-c" else request["folder"])
    if what == "-c":
        exec(rest[0], {"__name__": "__main__"})
    elif what == "-m":
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = [what, *rest]
        sys.path.insert(0, str(Path(what).parent))
        runpy.run_path(what, run_name="__main__")


def main(channel: str | None = None) -> None:
    if channel is None:
        imported = import_these(LIBRARIES)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(os.environ[ADDRESS])
        listener.listen(64)
        forks = _Forks(listener, imported, LEFT_BY_CORES, passes_on=True)
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # closes what its owner waits for
    else:
        import setproctitle

        imported = import_these(OF_CORES, unless=READ_LATER)
        setproctitle.getproctitle()  # finds where titles go, which it cannot in a fork that has other variables
        forks = _Forks(socket.socket(fileno=int(channel)), imported, set(), passes_on=False)
    while isinstance(task := forks.run(), _Start):
        forks.close()
        imported = with_ray(task.environment, imported)
        forks = _Forks(task.channel, imported, LEFT_BY_CORES | OF_ONE_WORKER, passes_on=False)
    if task is not None:
        forks.close()
        _become(task.what, task.files)


if __name__ == "__main__":
    main(*sys.argv[2:])
