"""How a request comes in: with the key, its body read within bounds of size and time, checked, and in the queue.

A body is read whole, in good time, and not more of all bodies together than memory has room for. A flood waits in the
HTTP proxy of Serve (`Admission`), where waiting costs next to nothing: behind it each request costs milliseconds in
several processes, in the order in which they came. Serve takes how many get in at a time from the environment of the
process that starts the cluster; `seal-ray serve` sets it by itself (`admit`).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seal_ray.serving.fields import checked
from seal_ray.serving.limits import NoPlace, RefusedRequest, RequestLimits, error_response, header, read_body
from seal_ray.serving.queues import MAX_WAITING, Places

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_SMALL = 65_536
"""Bytes of a body that is parsed at once; larger ones are parsed in a thread, one after the other."""
_HEADERS = (b"host", b"user-agent", b"accept", b"content-type")
"""Headers that go on. Others steer Ray and vLLM: the priority of a request, its id, the engine that takes it."""
_MAX_HELD = 256 << 20
"""Bytes of all bodies that are held at a time."""
_KEPT_FREE = 32 << 20
"""Bytes beside these for bodies that are announced as small: large ones that never end keep none of them out."""
_KNOWN = 10_000
"""Connections that are remembered as answered."""
_PREFIX = "SEAL_RAY_PROXY_"
_ENVIRONMENT = {
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": f"{__name__}:middlewares",
    # On a busy machine a proxy takes longer than the five seconds that Serve gives it, and is then killed.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    # A request passes fewer threads on its way: a third less of its time, and nothing here holds up an event loop.
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}


def digest_of(key: str) -> str:
    """The SHA-256 of a key: all of it that the server holds."""
    return hashlib.sha256(key.encode()).hexdigest()


def has_key(scope: MutableMapping[str, Any], digest: str) -> bool:
    """Whether the request has the key of that digest as its bearer token."""
    scheme, _, key = header(scope, b"authorization").partition(b" ")
    given = hashlib.sha256(key.strip()).hexdigest()
    return hmac.compare_digest(given, digest) and scheme.lower() == b"bearer"


class RequireKey:
    """Answers 401 to every request without the key as its bearer token."""

    def __init__(self, app: ASGIApp, digest: str) -> None:
        self._app = app
        self._digest = digest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and not has_key(scope, self._digest):
            message = "the API key is missing or wrong; send it as Authorization: Bearer KEY."
            response = error_response(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class Bodies:
    """Reads bodies of `most` bytes at most, for which a client has so many `seconds`."""

    def __init__(self, most: int, *, seconds: float = 60.0) -> None:
        self._most = most
        self._seconds = seconds
        self._held = 0

    @asynccontextmanager
    async def of(self, scope: Scope, receive: Receive) -> AsyncGenerator[bytes | None, None]:
        """The body, which counts as held inside the block; None where the client disconnected before its end.

        Raises `RefusedRequest` for one that is too large or too slow, and `NoPlace` where others take all the room.
        """
        held, parts, body = 0, list[bytes](), None
        try:
            try:
                announced = header(scope, b"content-length")
                length = int(announced[:20]) if announced.isdigit() else None
                if length is not None and length > self._most:
                    raise self._too_large()
                room = max(_MAX_HELD, self._most) + (_KEPT_FREE if length is not None and length <= _SMALL else 0)
                async with asyncio.timeout(self._seconds):
                    async for part in Request(scope, receive).stream():
                        held += len(part)
                        self._held += len(part)
                        if held > self._most:
                            raise self._too_large()
                        if self._held > room:
                            raise NoPlace
                        parts.append(part)
                body = b"".join(parts)
            except TimeoutError:
                raise RefusedRequest(
                    f"the request did not arrive within {self._seconds:g} seconds.", status=408, code="timeout"
                ) from None
            except ClientDisconnect:
                pass
            parts.clear()
            yield body
        finally:
            self._held -= held

    def _too_large(self) -> RefusedRequest:
        return RefusedRequest(
            f"the request is too large; {self._most} bytes are allowed.", status=413, code="request_too_large"
        )


def with_body(body: bytes, scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
    """The request with this body, which is received at once; what comes after it is the client's disconnect."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    of_the_body = (b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in scope.get("headers", ()) if name.lower() not in of_the_body]
    return {**scope, "headers": [*kept, (b"content-length", str(len(body)).encode())]}, next_message


def _paths(scope: Scope) -> tuple[str, str]:
    """The path of a request, and what is below the prefix of an application that Serve has mounted elsewhere."""
    path: str = scope["path"]
    return path, path.removeprefix(scope.get("root_path", ""))


class Intake:
    """Passes on requests to the endpoints that are within the limits, one for each place, and answers the others.

    `seconds` is the time that a client has to send its body.
    """

    def __init__(self, app: ASGIApp, *, limits: RequestLimits, places: Places, seconds: float = 60.0) -> None:
        self._app = app
        self._limits = limits
        self._places = places
        self._bodies = Bodies(limits.body_bytes, seconds=seconds)
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parse")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        paths = _paths(scope) if scope["type"] == "http" and scope["method"] == "POST" else ()
        if CHAT not in paths and COMPLETIONS not in paths:
            await self._app(scope, receive, send)
            return
        try:
            await self._take(scope, receive, send, chat=CHAT in paths)
        except RefusedRequest as error:
            await error.response()(scope, receive, send)

    async def _take(self, scope: Scope, receive: Receive, send: Send, *, chat: bool) -> None:
        kind = header(scope, b"content-type").partition(b";")[0].strip().lower()
        if kind != b"application/json":  # web pages of other origins may send other types without asking
            raise RefusedRequest("the body must be sent as application/json.", code="invalid_content_type")
        async with self._bodies.of(scope, receive) as body:
            if body is None:
                return
            if len(body) <= _SMALL:
                body = self._clean(body, chat=chat)
            else:
                body = await asyncio.get_running_loop().run_in_executor(self._parser, self._clean, body, chat)
            headers = [(name, value) for name, value in scope.get("headers", ()) if name.lower() in _HEADERS]
            async with self._places.one():
                await self._app(*with_body(body, {**scope, "headers": headers}, receive), send)

    def _clean(self, body: bytes, chat: bool) -> bytes:
        document = checked(read_body(body), chat=chat, limits=self._limits)
        try:
            return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            raise RefusedRequest("body: a number in it is too large.", code="invalid_json") from None


class Admission:
    """Lets so many POST requests in at a time, once they have arrived; the newest and the oldest get in by turns.

    Connections that were answered before go first: a client that keeps its connection does not wait behind a flood of
    new ones. Requests without the key go on at once: they are turned away without being read.
    """

    def __init__(self, app: ASGIApp, *, places: int, body_bytes: int, digest: str) -> None:
        self._app = app
        self._places = Places(places, waiting=MAX_WAITING)
        self._bodies = Bodies(body_bytes)
        self._digest = digest
        self._known: OrderedDict[tuple[Any, ...], None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or (self._digest and not has_key(scope, self._digest)):
            await self._app(scope, receive, send)
            return
        try:
            async with self._bodies.of(scope, receive) as body:
                if body is not None:
                    client = tuple(scope.get("client") or ())
                    async with self._places.one(first=client in self._known):
                        await self._app(*with_body(body, scope, receive), send)
                    self._remember(client)
        except RefusedRequest as error:
            await error.response()(scope, receive, send)

    def _remember(self, client: tuple[Any, ...]) -> None:
        if not client:  # a socket without addresses
            return
        self._known[client] = None
        self._known.move_to_end(client)
        if len(self._known) > _KNOWN:
            self._known.popitem(last=False)


def middlewares() -> list[Middleware]:
    """What Serve's proxies are to run, by the environment that `admit` sets."""
    return [
        Middleware(
            Admission,
            places=int(os.environ[f"{_PREFIX}PLACES"]),
            body_bytes=int(os.environ[f"{_PREFIX}BODY_BYTES"]),
            digest=os.environ[f"{_PREFIX}KEY_DIGEST"],
        )
    ]


def admit(*, places: int, body_bytes: int, key: str | None) -> None:
    """Has the proxies of a cluster that this process starts let in so many requests at a time, of so many bytes."""
    own = {"PLACES": places, "BODY_BYTES": body_bytes, "KEY_DIGEST": digest_of(key) if key else ""}
    os.environ.update({f"{_PREFIX}{name}": str(value) for name, value in own.items()})
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
