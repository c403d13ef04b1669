"""The way of a request in: the key, a body read within bounds of size and time, its checks, and the queue.

A body is read completely, within a deadline, and only as far as memory for all bodies allows. A flood waits in Serve's
HTTP proxy (`Admission`), where waiting is cheap: behind it each request costs milliseconds in several processes, in
order of arrival. Serve takes the proxies' limits from the environment of the process that starts the cluster;
`seal-ray serve` sets it (`admit`).
"""

import asyncio
import hashlib
import hmac
import json
import os
from collections import OrderedDict
from collections.abc import AsyncGenerator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seal_ray.serving.forms import standard_form, translating_send
from seal_ray.serving.limits import NoPlace, RefusedRequest, RequestLimits, error_response, header, read_body
from seal_ray.serving.queues import MAX_WAITING, Places
from seal_ray.serving.request_models import parse_request
from seal_ray.serving.responses import chat_request, response_error
from seal_ray.serving.schemas import check_compiles, constraints

CHAT, COMPLETIONS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
_SMALL = 65_536
"""Bytes of a body that is parsed at once; larger ones are parsed in a thread, one after the other."""
_HEADERS = (b"host", b"user-agent", b"accept", b"content-type")
"""Headers that are passed on. Others steer Ray and vLLM: a request's priority, its id, its engine."""
_MAX_HELD = 256 << 20
"""Bytes of all bodies in memory."""
_KEPT_FREE = 32 << 20
"""Additional bytes for bodies that are announced as small, so that large ones that never end do not block them."""
_KNOWN = 10_000
"""Number of answered connections that are remembered."""
_PREFIX = "SEAL_RAY_PROXY_"
_ENVIRONMENT = {
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": f"{__name__}:middlewares",
    # On a busy machine a proxy takes longer than Serve's five seconds, and is then killed.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    # A request passes fewer threads: a third less time, and nothing here blocks an event loop.
    "RAY_SERVE_RUN_USER_CODE_IN_SEPARATE_THREAD": "0",
    "RAY_SERVE_RUN_ROUTER_IN_SEPARATE_LOOP": "0",
}


def digest_of(key: str) -> str:
    """The SHA-256 of a key, which is all of it that the server holds."""
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
        app = self._app
        if scope["type"] != "lifespan" and not has_key(scope, self._digest):
            message = "the API key is missing or wrong; send it as Authorization: Bearer KEY."
            app = error_response(401, message, "invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
        await app(scope, receive, send)


class BodyReader:
    """Reads bodies of at most `most` bytes, for which a client has `seconds`."""

    def __init__(self, most: int, *, seconds: float = 60.0) -> None:
        self._most = most
        self._seconds = seconds
        self._held = 0

    @asynccontextmanager
    async def read(self, scope: Scope, receive: Receive) -> AsyncGenerator[bytes | None, None]:
        """The body, which counts as held inside the block; None if the client disconnected before its end.

        Raises `RefusedRequest` for a body that is too large or too slow, and `NoPlace` if others take all the room.
        """
        held, parts, body = 0, list[bytes](), None
        too_large = RefusedRequest(
            f"the request is too large; {self._most} bytes are allowed.", status=413, code="request_too_large"
        )
        try:
            announced = header(scope, b"content-length")
            length = int(announced[:20]) if announced.isdigit() else None
            if length is not None and length > self._most:
                raise too_large
            room = max(_MAX_HELD, self._most) + (_KEPT_FREE if length is not None and length <= _SMALL else 0)
            try:
                async with asyncio.timeout(self._seconds):
                    async for part in Request(scope, receive).stream():
                        held += len(part)
                        self._held += len(part)
                        if held > self._most:
                            raise too_large
                        if self._held > room:
                            raise NoPlace
                        parts.append(part)
                body = b"".join(parts)
            except TimeoutError:
                message = f"the request did not arrive within {self._seconds:g} seconds."
                raise RefusedRequest(message, status=408, code="timeout") from None
            except ClientDisconnect:
                pass
            parts.clear()
            yield body
        finally:
            self._held -= held


def with_body(body: bytes, scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
    """The request with this body, which is received at once; what follows is the client's disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def next_message() -> Message:
        return messages.pop() if messages else await receive()

    replaced = (b"content-length", b"transfer-encoding")
    kept = [(name, value) for name, value in scope.get("headers", ()) if name.lower() not in replaced]
    return {**scope, "headers": [*kept, (b"content-length", str(len(body)).encode())]}, next_message


class Intake:
    """Passes on valid requests to the endpoints, one for each place, and refuses the others.

    `seconds` is the time that a client has to send its body.
    """

    def __init__(self, app: ASGIApp, *, limits: RequestLimits, places: Places, seconds: float = 60.0) -> None:
        self._app = app
        self._limits = limits
        self._places = places
        self._bodies = BodyReader(limits.body_bytes, seconds=seconds)
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parse")
        self._compiler = ThreadPoolExecutor(1, thread_name_prefix="compile")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        paths: tuple[str, ...] = ()
        if scope["type"] == "http" and scope["method"] == "POST":
            # The path may have the prefix of an application that Serve has mounted elsewhere.
            paths = (scope["path"], scope["path"].removeprefix(scope.get("root_path", "")))
        endpoint = next((path for path in (CHAT, COMPLETIONS, RESPONSES) if path in paths), None)
        if endpoint is None:
            await self._app(scope, receive, send)
            return
        try:
            await self._take(scope, receive, send, endpoint)
        except RefusedRequest as error:
            shown = response_error(error) if endpoint == RESPONSES else error
            await shown.response()(scope, receive, send)

    async def _take(self, scope: Scope, receive: Receive, send: Send, endpoint: str) -> None:
        kind = header(scope, b"content-type").partition(b";")[0].strip().lower()
        if kind != b"application/json":  # web pages of other origins may send other types without a preflight
            raise RefusedRequest("the body must be sent as application/json.", code="invalid_content_type")
        async with self._bodies.read(scope, receive) as body:
            if body is None:
                return
            in_thread = asyncio.get_running_loop().run_in_executor
            clean = partial(self._clean, body, endpoint)
            request, schemas, form = clean() if len(body) <= _SMALL else await in_thread(self._parser, clean)
            for place, schema in schemas:
                await in_thread(self._compiler, check_compiles, schema, place)
            headers = [(name, value) for name, value in scope.get("headers", ()) if name.lower() in _HEADERS]
            path = scope["path"].removesuffix(RESPONSES) + CHAT if endpoint == RESPONSES else scope["path"]
            async with self._places.one():
                passed = with_body(request, {**scope, "path": path, "headers": headers}, receive)
                await self._app(*passed, translating_send(send, form) if form else send)

    def _clean(self, body: bytes, endpoint: str) -> tuple[bytes, list[tuple[str, Any]], Any]:
        """The checked request, its schemas with their places, and the form of its answer if that is another one."""
        document = read_body(body)
        form: Any = None
        if endpoint == RESPONSES:
            document, form = chat_request(document)
        if endpoint != COMPLETIONS:
            document, other = standard_form(document)
            form = form or other
        request = parse_request(document, chat=endpoint != COMPLETIONS, limits=self._limits)
        try:
            return json.dumps(request, ensure_ascii=False, allow_nan=False).encode(), list(constraints(request)), form
        except ValueError:
            raise RefusedRequest("body: a number in it is too large.", code="invalid_json") from None


class Admission:
    """Admits POST requests to so many places, once they have arrived; the newest and the oldest by turns.

    Connections that were answered before come first: a client that keeps its connection does not wait behind a flood of
    new ones. Requests without the key pass unread, to be refused behind.
    """

    def __init__(self, app: ASGIApp, *, places: int, body_bytes: int, digest: str) -> None:
        self._app = app
        self._places = Places(places, waiting=MAX_WAITING)
        self._bodies = BodyReader(body_bytes)
        self._digest = digest
        self._known: OrderedDict[tuple[Any, ...], None] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or (self._digest and not has_key(scope, self._digest)):
            await self._app(scope, receive, send)
            return
        try:
            async with self._bodies.read(scope, receive) as body:
                if body is not None:
                    client = tuple(scope.get("client") or ())
                    async with self._places.one(first=client in self._known):
                        await self._app(*with_body(body, scope, receive), send)
                    self._remember(client)
        except RefusedRequest as error:
            await error.response()(scope, receive, send)

    def _remember(self, client: tuple[Any, ...]) -> None:
        if client:  # a socket may have no address
            self._known[client] = None
            self._known.move_to_end(client)
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)


def middlewares() -> list[Middleware]:
    """The middlewares of Serve's proxies, by the environment that `admit` sets."""
    environ = os.environ
    places, body_bytes = int(environ[f"{_PREFIX}PLACES"]), int(environ[f"{_PREFIX}BODY_BYTES"])
    return [Middleware(Admission, places=places, body_bytes=body_bytes, digest=environ[f"{_PREFIX}KEY_DIGEST"])]


def admit(*, places: int, body_bytes: int, key: str | None) -> None:
    """Sets the environment so that proxies of a cluster of this process admit `places` requests of `body_bytes`."""
    own = {"PLACES": places, "BODY_BYTES": body_bytes, "KEY_DIGEST": digest_of(key) if key else ""}
    os.environ.update({f"{_PREFIX}{name}": str(value) for name, value in own.items()})
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
