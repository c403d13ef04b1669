"""Servers of models: `seal-ray serve` in child processes, which end with this one."""

import json
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from envs.errors import SealError, UserError
from envs.received import read_json_object
from seal_ray.report.files import replace_file

_PROGRAM = """
import os, signal, sys, threading
from seal_ray.cli import main

def end_with_input():
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=end_with_input, daemon=True).start()
main()
"""
_ENDING = 180.0
"""Seconds until a server must have ended; Ray takes a minute on a busy machine."""
_READY = 1800.0
"""Seconds until a server's first answer; a large model may be on a slow disk."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A served model: the address of its chat interface up to `/v1`, its name there, and the key."""

    url: str
    name: str
    key: str


class ServerProcess:
    """A server that was started. `options` are those of `seal-ray serve`."""

    def __init__(self, model: str, name: str, options: Sequence[str], port: int, log: Path) -> None:
        self.endpoint = Endpoint(f"http://127.0.0.1:{port}/v1", name, secrets.token_hex(16))
        self.options = tuple(options)
        self._log = log
        command = ["serve", model, "--model-name", name, "--port", str(port), *options]
        log.parent.mkdir(parents=True, exist_ok=True)
        replace_file(log, b"")
        with log.open("w", encoding="utf-8") as file:
            self.process = subprocess.Popen(  # noqa: S603 - our own command
                [sys.executable, "-P", "-c", _PROGRAM, *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=subprocess.STDOUT,
                # A separate cluster: two servers of one cluster would replace each other.
                env={**os.environ, "SEAL_RAY_API_KEY": self.endpoint.key, "RAY_ADDRESS": "local", "COLUMNS": "200"},
                start_new_session=True,
            )

    def wait(self) -> None:
        """Waits until it answers. Raises `SealError` if it ends before, or takes too long."""
        deadline = time.monotonic() + _READY
        while served_models(self.endpoint) is None:
            self.check()
            if time.monotonic() > deadline:
                raise SealError(f"the server of {self.endpoint.name} does not answer; its log is {self._log}")
            time.sleep(0.5)

    def check(self) -> None:
        """Raises `SealError` if it has ended."""
        if self.process.poll() is not None:
            raise SealError(f"the server of {self.endpoint.name} has ended; its log is {self._log}")

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@dataclass
class Servers:
    """Servers by the folder of their model, started on first use.

    A model keeps its port from one command to the next, in `ports.json` of the folder, since Inspect's cache of answers
    is keyed by address.
    """

    folder: Path
    _running: dict[str, ServerProcess] = field(default_factory=dict, init=False)

    def get(
        self, model: str, name: str, options: Sequence[str], starting: Callable[[], None], *, exactly: bool
    ) -> ServerProcess:
        """The model's running server. One with other options is returned too, unless it must have these `exactly`."""
        if exactly and model in self._running and self._running[model].options != tuple(options):
            self._running.pop(model).close()
        if model not in self._running:
            starting()
            log = self.folder / "servers" / f"{name}.log"
            self._running[model] = ServerProcess(model, name, options, self.port_of(model), log)
            self._running[model].wait()
        return self._running[model]

    def close(self, keep: Sequence[str | None] = ()) -> None:
        """Ends all servers except the servers of the models to keep."""
        for model in [each for each in self._running if each not in keep]:
            self._running.pop(model).close()

    def port_of(self, model: str) -> int:
        path = self.folder / "ports.json"
        known = read_json_object(path) if path.exists() else {}
        port = known.get(model, 0)
        if type(port) is not int or not 0 <= port < 1 << 16:
            raise UserError(f"{path}: {port!r:.40} is no port.")
        for wanted in (port, 0):
            try:
                with socket.create_server(("127.0.0.1", wanted)) as listener:
                    known[model] = listener.getsockname()[1]
                    break
            except OSError:
                continue  # another program has it now
        replace_file(path, json.dumps(known, indent=1).encode())
        return int(known[model])


def served_models(endpoint: Endpoint) -> list[str] | None:
    """The names of the models at an endpoint; None if it does not answer."""
    import httpx

    try:
        answer = httpx.get(
            f"{endpoint.url}/models", headers={"Authorization": f"Bearer {endpoint.key}"}, timeout=10, trust_env=False
        )
        return [str(each["id"]) for each in answer.json()["data"]] if answer.status_code == 200 else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError, TypeError):
        return None


def endpoint_at(url: str, name: str) -> Endpoint:
    """The endpoint of a running server, with the key of the environment.

    The model is the one of this name, or the only one there. Raises `UserError` if there is none.
    """
    url = url.rstrip("/")
    if "@" in url:
        raise UserError("--server: the address holds a user name or a key; remove it, and set SEAL_RAY_API_KEY.")
    key = os.environ.get("SEAL_RAY_API_KEY") or "none"
    names = served_models(Endpoint(url, name, key))
    if names is None:
        raise UserError(f"--server: nothing answers at {url}/models; SEAL_RAY_API_KEY holds its key if it has one.")
    if name not in names and len(names) != 1:
        raise UserError(f"--server: {url} has no model {name!r} ({', '.join(names)[:200] or 'none'}).")
    return Endpoint(url, name if name in names else names[0], key)
