"""A stand-in of the Hugging Face hub: as much of its protocol as its client needs to fetch a model."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves the folders of `models` by OWNER/NAME; `refused` maps others to the error code that the hub gives.

    `asked` collects the paths of all requests.
    """

    def __init__(self, models: Mapping[str, Path], refused: Mapping[str, str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.models = models
        self.refused = refused
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, *, body: bool) -> None:
        self.server.asked.append(self.path)
        path = self.path.partition("?")[0].removeprefix("/api/models").strip("/")
        owner, name, *rest = path.split("/")
        model = f"{owner}/{name}"
        if model not in self.server.models:
            refused = self.server.refused.get(model)
            self._send(404 if refused is None else 401, b"", refused or "RepoNotFound")
            return
        folder = self.server.models[model]
        revision = rest[1] if len(rest) > 1 else "main"
        if revision not in ("main", "v1", COMMIT):
            self._send(404, b"", "RevisionNotFound")
        elif rest[:1] == ["resolve"]:
            file = folder / "/".join(rest[2:])
            self._send(200, file.read_bytes() if body else b"", of=file)
        elif rest[:1] == ["tree"]:
            sizes = {each.name: each.stat().st_size for each in folder.iterdir()}
            files = [{"type": "file", "path": name, "size": size, "oid": "0" * 40} for name, size in sizes.items()]
            self._send(200, json.dumps(files).encode())
        else:
            siblings = [{"rfilename": each.name} for each in sorted(folder.iterdir())]
            self._send(200, json.dumps({"id": model, "sha": COMMIT, "siblings": siblings}).encode())

    def _send(self, status: int, content: bytes, error: str | None = None, *, of: Path | None = None) -> None:
        self.send_response(status)
        if error is not None:
            self.send_header("X-Error-Code", error)
            self.send_header("X-Error-Message", error)
        self.send_header("X-Repo-Commit", COMMIT)
        if of is not None:
            self.send_header("ETag", f'"{hashlib.sha1(of.read_bytes()).hexdigest()}"')
            self.send_header("Content-Length", str(of.stat().st_size))
        else:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def hub(models: Mapping[str, Path], refused: Mapping[str, str]) -> Iterator[Hub]:
    """Such a hub, on a port of its own."""
    server = Hub(models, refused)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
