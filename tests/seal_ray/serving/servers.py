"""`seal-ray serve` in a process of its own, for tests that talk to it as its clients do."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from openai import OpenAI

from tests.processes import PROGRAM, free_port, title, tree
from tests.watched import SECRETS

KEY = SECRETS["SEAL_RAY_API_KEY"]
NAME = "openbmb/MiniCPM-SALA-FC"
"""The name of the served model: registered for chat completions in BFCL's own client."""
CONTEXT, RESPONSE = 16_384, 128
_START = 400


@dataclass(frozen=True)
class Running:
    """A server, its port, its log and its folder for temporary files."""

    process: subprocess.Popen[str]
    port: int
    log: Path
    temporary: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key: str = KEY, *, retries: int = 0) -> OpenAI:
        return OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=retries, timeout=120)

    def post(self, body: Any, path: str = "/v1/chat/completions", **settings: Any) -> httpx.Response:
        """Sends bytes as they are, and anything else as JSON, with the key unless other headers are given."""
        settings.setdefault("headers", {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
        content = {"content": body} if isinstance(body, bytes) else {"json": body}
        return httpx.post(f"{self.url}{path}", timeout=300, **content, **settings)

    def replicas(self, name: str) -> list[int]:
        """Process ids of the deployment's replicas."""
        return [pid for pid in tree(self.process.pid) if f"ServeReplica:seal-ray:{name}" in title(pid)]


@contextmanager
def serving(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Running]:
    """The server of a command line, from when it is ready to its end; its log is in `folder`."""
    port, log = free_port(), folder / "serve.log"

    temporary = Path(tempfile.mkdtemp(prefix="t"))  # a short name, as the paths of sockets must be
    with log.open("w") as file:
        process = subprocess.Popen(
            [*PROGRAM, *arguments, "--port", str(port)],
            text=True,
            stdout=file,
            stderr=subprocess.STDOUT,
            env={
                **os.environ,
                "RAY_ADDRESS": "local",
                "COLUMNS": "200",
                "TMPDIR": str(temporary),
                **(environment or {}),
            },
        )
    try:
        deadline = time.monotonic() + _START
        while "serving " not in log.read_text():
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield Running(process, port, log, temporary)
    finally:
        below = tree(process.pid)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(90)
            except subprocess.TimeoutExpired:
                process.kill()
        wait_for_end(below)
        shutil.rmtree(temporary, ignore_errors=True)


def wait_for_end(pids: Sequence[int]) -> list[int]:
    """Waits half a minute at most for processes to end. Returns those that have not."""
    deadline = time.monotonic() + 30
    while (left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


def joined(chunks: Any) -> dict[str, Any]:
    """The whole of a stream: content, (name, arguments) of each call, and why it ended."""
    content, finish = "", None
    calls: dict[int, list[str]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            content += choice.delta.content or ""
            for call in choice.delta.tool_calls or ():
                entry = calls.setdefault(call.index, ["", ""])
                entry[0] += call.function.name or ""
                entry[1] += call.function.arguments or ""
            finish = choice.finish_reason or finish
    return {"content": content, "calls": [tuple(entry) for _, entry in sorted(calls.items())], "finish": finish}
