"""The start of a process that a server may take over (preloaded.py), with few imports: hundreds of processes do it."""

import marshal
import os
import signal
import socket
import struct
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CONSOLE_SCRIPT = "/bin/seal-ray"
WORKER = "ray/_private/workers/default_worker.py"
SPAWNED = "from multiprocessing.spawn import spawn_main"
PROGRAMS = (SPAWNED, "from seal_ray.cli import main; main()")
MODULES = {"tests.tuning.comparison.driver", "tests.tuning.sweep.driver"}
SAFE_PATH = "-P"
MOST_FILES = 200
_LOOKS_AFTER = 1.0
"""Seconds after which the first process of a worker looks again whether its raylet lives."""


def parts(command: list[str]) -> tuple[set[str], str, list[str]]:
    """Python's own options; the script's path, or `-c` or `-m`; and what follows."""
    start = 1
    while start < len(command) and command[start].startswith("-") and command[start] not in ("-c", "-m"):
        start += 1
    what, *rest = command[start:] or [""]
    return set(command[1:start]), what, rest


def is_worker(command: list[str]) -> bool:
    """Whether a command line is that of a worker of Ray."""
    return parts(command)[1].endswith(WORKER)


def is_served(command: list[str]) -> bool:
    """Whether a command line starts a worker of Ray, a process that one spawns, or a command or a driver of ours."""
    options, what, rest = parts(command)
    match what:
        case "-m":
            ours = rest[0] in MODULES
        case "-c":
            ours = rest[0].startswith(PROGRAMS)
        case _:
            ours = what.endswith((WORKER, CONSOLE_SCRIPT))
    return ours and options <= {"-u", "-B", SAFE_PATH}


def take_over(address: str) -> None:
    """Has a fork of the server run this process's command, and ends as that ends. Returns where that cannot be."""
    # A job brings its code in its working directory.
    ours = next((path for path in sys.path if os.path.isdir(os.path.join(path, "seal_ray"))), ROOT)
    parent = os.getppid()
    with socket.socket(socket.AF_UNIX) as server:
        files = [int(name) for name in os.listdir("/proc/self/fd")]
        files = [file for file in files if file != server.fileno() and _is_open(file)]
        if len(files) > MOST_FILES:
            return
        request = {
            "command": sys.orig_argv,
            "environment": dict(os.environ),
            "folder": os.getcwd(),
            "path": sys.path,
            "files": files,
            "own_code": os.path.realpath(ours) != os.path.realpath(ROOT),
            "group": os.getpgid(0),
        }
        body = marshal.dumps(request)
        try:
            server.connect(address)
            socket.send_fds(server, [struct.pack("!I", len(body))], files)
            server.sendall(body)
            pid = _number(server)
        except OSError:  # not ready yet, or gone
            return
        if not pid:
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda received, _: send(pid, received))
        for file in files:
            os.close(file)
        os._exit(_wait(server, pid, parent))


def _wait(server: socket.socket, pid: int, parent: int) -> int:
    """The exit code of the fork. A worker's fork ends when its raylet has ended, as a worker by itself would."""
    if is_worker(sys.orig_argv):
        server.settimeout(_LOOKS_AFTER)
    while True:
        try:
            code = _number(server)
        except TimeoutError:
            if os.getppid() == parent:
                continue
            send(pid, signal.SIGKILL)
            code = None
        return 1 if code is None else code


def _is_open(file: int) -> bool:
    try:
        os.fstat(file)
    except OSError:  # that of the listing itself
        return False
    return True


def send(pid: int, number: int) -> None:
    """Sends a signal to a process that may have ended."""
    try:  # noqa: SIM105  # without another import
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _number(connection: socket.socket) -> int | None:
    """The number that is sent next; None where the other side is gone."""
    got = connection.recv(4, socket.MSG_WAITALL)
    return int(struct.unpack("!I", got)[0]) if len(got) == 4 else None
