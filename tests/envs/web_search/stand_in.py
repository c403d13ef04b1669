"""A search service and a small web on this machine, in threads of the test process."""

import gzip
import json
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from envs.bfcl.pages import PageLimits
from envs.bfcl.web_search import Patience, Service, Web

HTML = (
    "<html><head><title>Tea &amp; money</title><style>p {color: red}</style><script>let x = 1;</script></head>"
    "<body><h1>Dà hóng páo</h1><p>The <b>dearest</b> tea. <a href='/other'>More</a></p>"
    "<ul><li>one</li><li>two</li></ul>"
    "<p>Ünïcode “quotes” 漢字</p></body></html>"
)
PATIENCE = Patience(pause=0.01, longest=0.02, tries=3, throttled=0.1, answer=5.0)
LIMITS = PageLimits(idle=2.0, seconds=3.0, size=200_000, redirects=30)
PAGES: dict[str, tuple[bytes, dict[str, str]]] = {
    "/plain": (HTML.encode(), {"Content-Type": "text/html; charset=utf-8"}),
    "/quoted": (HTML.encode(), {"Content-Type": 'text/html; x=y; Charset="UTF-8"'}),
    "/unsaid": (HTML.encode(), {"Content-Type": "text/html"}),
    "/untyped": (HTML.encode(), {}),
    "/json": ('{"a": "é"}'.encode(), {"Content-Type": "application/json"}),
    "/latin": (HTML.encode("latin-1", "replace"), {"Content-Type": "application/xhtml+xml"}),
    "/broken": (HTML.encode()[:-3] + b"\xff\xfe\x80\x00", {"Content-Type": "text/html; charset=utf-8"}),
    "/wrong": (HTML.encode(), {"Content-Type": "text/html; charset=utf-16"}),
    "/unknown": (HTML.encode(), {"Content-Type": "text/html; charset=nothing"}),
    "/codec": (HTML.encode(), {"Content-Type": "text/html; charset=zlib"}),
    "/empty": (b"", {"Content-Type": "text/html"}),
    "/gzip": (gzip.compress(HTML.encode()), {"Content-Type": "text/html; charset=utf-8", "Content-Encoding": "gzip"}),
    "/deflate": (zlib.compress(HTML.encode()), {"Content-Type": "text/html", "Content-Encoding": "deflate"}),
    "/raw-deflate": (zlib.compress(HTML.encode())[2:-4], {"Content-Type": "text/html", "Content-Encoding": "deflate"}),
}
KEY = "secret-key"
BOMB = gzip.compress(bytes(50_000_000))


class StandIn:
    """The server. `found` has results by keywords; other keywords find one page of two results.

    `alive` false cuts every search off; `status` answers searches with that status and `{"error": …}` or, where
    `json` is false, a page.
    """

    def __init__(self) -> None:
        self.found: dict[str, list[dict[str, Any]]] = {}
        self.pages = dict(PAGES)
        self.asked: list[str] = []
        """The searches that were answered."""
        self.fetched: list[str] = []
        self.alive, self.status, self.json = True, 200, True
        self._connections, self._dies_after, self._changed = 0, 10**9, threading.Condition()
        self.busy = 0
        """Searches that are answered with 429 before the next one is not."""
        stand_in = self

        class Handler(BaseHTTPRequestHandler):
            def setup(self) -> None:
                stand_in._count(1)
                super().setup()

            def finish(self) -> None:
                super().finish()
                stand_in._count(-1)

            def do_GET(self) -> None:
                path = urlsplit(self.path).path
                if path == "/search":
                    return stand_in._search(self)
                stand_in.fetched.append(self.path)
                return stand_in._page(self, path)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name there
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_port}"

    @property
    def dies_after(self) -> int:
        """Searches that are answered before the service dies."""
        return self._dies_after

    @dies_after.setter
    def dies_after(self, searches: int) -> None:
        # Searches that were under way when the service died must not be answered by the one that is alive again.
        with self._changed:
            self._changed.wait_for(lambda: self._connections == 0, timeout=5)
            self._dies_after = searches

    def _count(self, connections: int) -> None:
        with self._changed:
            self._connections += connections
            self._changed.notify_all()

    def web(self, *, private: bool = True, **limits: Any) -> Web:
        """The tools on this server."""
        allowed = frozenset({self.host}) if private else frozenset()
        service = Service(KEY, f"http://{self.host}/search", allowed)
        return Web(service, patience=PATIENCE, limits=PageLimits(**limits) if limits else LIMITS)

    def _search(self, to: BaseHTTPRequestHandler) -> None:
        with self._changed:
            answers = self.alive and len(self.asked) < self._dies_after
            if answers:
                self.asked.append(to.path)
        if not answers:
            to.close_connection = True
            to.connection.close()
            return
        status, answer = self.status, {"error": f"something with {status_text(self.status)}"}
        if self.busy > 0:
            self.busy -= 1
            status, answer = 429, {"error": "Too many requests."}
        elif status == 200:
            query = parse_qs(urlsplit(to.path).query)
            keywords = " ".join(query.get("q", []))
            default = [{"title": f"{keywords} {n}", "link": f"http://{self.host}/{n}", "snippet": "…"} for n in (1, 2)]
            answer = {"organic_results": self.found.get(keywords, default)}  # type: ignore[dict-item]
            if keywords == "nothing":
                answer = {"error": "No results for this query."}
        body = json.dumps(answer).encode() if self.json else b"<html>no JSON</html>"
        _send(to, status, body, {"Content-Type": "application/json"})

    def _page(self, to: BaseHTTPRequestHandler, path: str) -> None:
        if path in self.pages:
            body, headers = self.pages[path]
            _send(to, 200, body, headers)
        elif path.startswith("/status/"):
            _send(to, int(path.removeprefix("/status/")), b"<p>no</p>", {})
        elif path == "/to":
            _send(to, 302, b"", {"Location": urlsplit(to.path).query})
        elif path == "/round":
            _send(to, 302, b"", {"Location": "/round"})
        elif path == "/bomb":
            _send(to, 200, BOMB, {"Content-Encoding": "gzip"})
        elif path == "/twice":
            _send(to, 200, gzip.compress(BOMB), {"Content-Encoding": "gzip, gzip"})
        elif path in ("/endless", "/drip"):
            to.send_response(200)
            to.end_headers()
            for _ in range(10_000):
                try:
                    to.wfile.write(b"x" * (10_000 if path == "/endless" else 1))
                except OSError:
                    break
                time.sleep(0.05 if path == "/drip" else 0)
        else:
            _send(to, 404, b"<p>no</p>", {})


def status_text(status: int) -> str:
    return "no number" if status == 429 else str(status)


def _send(to: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
    to.send_response(status)
    for name, value in headers.items():
        to.send_header(name, value)
    to.send_header("Content-Length", str(len(body)))
    to.end_headers()
    to.wfile.write(body)


@contextmanager
def running() -> Iterator[StandIn]:
    """A server that runs."""
    found = StandIn()
    thread = threading.Thread(target=lambda: found.server.serve_forever(poll_interval=0.02), daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        found.server.server_close()
        thread.join()
