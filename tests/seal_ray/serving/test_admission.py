"""The proxy's gate: who holds a place in it, and who does not."""

import asyncio
import os
from collections.abc import MutableMapping
from typing import Any

import pytest

from seal_ray.serving.admission import Admission, admit, digest_of, middlewares

pytestmark = pytest.mark.anyio

KEY = "sesame"


class Client:
    """One request: `sent` is what it has sent so far, `said` what it was answered."""

    def __init__(self, *, key: str = KEY, length: int | None = None, port: int = 0) -> None:
        self.address = ("127.0.0.1", port)
        self.headers = [(b"authorization", f"Bearer {key}".encode())]
        if length is not None:
            self.headers.append((b"content-length", str(length).encode()))
        self.sent: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
        self.said: list[MutableMapping[str, Any]] = []

    def send(self, body: bytes, *, more: bool = False) -> None:
        self.sent.put_nowait({"type": "http.request", "body": body, "more_body": more})

    async def ask(self, app: Admission) -> int:
        scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/chat/completions"}
        scope |= {"headers": self.headers, "client": self.address}

        async def send(message: MutableMapping[str, Any]) -> None:
            self.said.append(message)

        await app(scope, self.sent.get, send)
        return int(self.said[0]["status"])


class Work:
    """The application behind the gate. It answers once it is let go, and counts who is in it."""

    def __init__(self) -> None:
        self.inside = 0
        self.go_on = asyncio.Event()
        self.bodies: list[bytes] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.inside += 1
        await self.go_on.wait()
        self.bodies.append((await receive())["body"])
        self.inside -= 1
        await send({"type": "http.response.start", "status": 200})


def gate(work: Work, places: int) -> Admission:
    return Admission(work, places=places, body_bytes=64, digest=digest_of(KEY))


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_connection_that_was_answered_before_goes_first_and_a_slow_sender_last() -> None:
    work = Work()
    app = gate(work, 1)
    work.go_on.set()
    known = Client(port=1)
    known.send(b"before")
    assert await known.ask(app) == 200
    work.go_on.clear()
    slow = Client()
    slow.send(b"{", more=True)
    hanging = asyncio.create_task(slow.ask(app))
    flood = [Client(port=2 + number) for number in range(20)]
    tasks = []
    for number, each in enumerate([*flood[:10], known, *flood[10:]]):
        each.send(str(number).encode())
        tasks.append(asyncio.create_task(each.ask(app)))
        await settle()
    assert work.inside == 1
    work.go_on.set()
    await asyncio.gather(*tasks)
    assert work.bodies[:3] == [b"before", b"0", b"10"]
    hanging.cancel()


async def test_one_without_the_key_goes_on_unread_and_takes_no_place() -> None:
    work = Work()
    app = gate(work, 1)
    strangers = [Client(key="sesam") for _ in range(3)]
    tasks = [asyncio.create_task(each.ask(app)) for each in strangers]
    known = Client()
    known.send(b"{}")
    asked = asyncio.create_task(known.ask(app))
    await settle()
    assert work.inside == 4, "three that the application behind turns away, and one that has its place"
    assert all(each.sent.empty() for each in strangers)
    for each in strangers:
        each.send(b"")
    work.go_on.set()
    assert await asked == 200
    await asyncio.gather(*tasks)


async def test_large_bodies_that_never_end_do_not_keep_small_ones_out() -> None:
    work = Work()
    work.go_on.set()
    most = 8 << 20
    app = Admission(work, places=2, body_bytes=most, digest=digest_of(KEY))
    part = b" " * (most - 1)
    hanging = []
    for _ in range(33):
        client = Client()
        client.send(part, more=True)
        hanging.append(asyncio.create_task(client.ask(app)))
    await settle()
    small, large = Client(length=65_536), Client()
    small.send(b" " * 65_536)
    large.send(part)
    assert await small.ask(app) == 200
    assert await large.ask(app) == 503
    for task in hanging:
        task.cancel()
    await asyncio.gather(*hanging, return_exceptions=True)


def test_the_environment_tells_the_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {})
    admit(places=7, body_bytes=9, key=KEY)
    (made,) = middlewares()
    assert str(made).startswith("Middleware(Admission")
    assert made.kwargs == {"places": 7, "body_bytes": 9, "digest": digest_of(KEY)}
    assert KEY not in "".join(os.environ.values())
    admit(places=7, body_bytes=9, key=None)
    assert middlewares()[0].kwargs["digest"] == ""
