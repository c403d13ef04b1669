"""How a request comes in: its body is read within bounds of size and time, checked, and gets a place in the queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from seal_ray.serving.errors import error_response, header
from seal_ray.serving.fields import checked
from seal_ray.serving.limits import Limits, RefusedRequest, read_body
from seal_ray.serving.places import NoPlace, Places

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_SMALL = 65_536
"""Bytes of a body that is parsed at once; larger ones are parsed in a thread, one after the other."""
_MAX_HELD = 256 << 20
"""Bytes of all bodies that are held at a time."""
_HEADERS = (b"host", b"user-agent", b"accept", b"content-type")
"""Headers that go on. Others steer Ray and vLLM: the priority of a request, its id, the engine that takes it."""


class Intake:
    """Passes on requests to the endpoints that are within the limits, one for each place, and answers the others.

    `seconds` is the time that a client has to send its body.
    """

    def __init__(self, app: ASGIApp, *, limits: Limits, places: Places, seconds: float = 60.0) -> None:
        self._app = app
        self._limits = limits
        self._places = places
        self._seconds = seconds
        self._held = 0
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parse")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in (CHAT, COMPLETIONS):
            await self._app(scope, receive, send)
            return
        held = _Held()
        try:
            await self._take(scope, receive, send, held)
        except RefusedRequest as error:
            await error_response(error.status, error.message, error.code, error.param)(scope, receive, send)
        except NoPlace:
            response = error_response(503, "too many requests wait already; send it again later.", "overloaded")
            response.headers["Retry-After"] = "5"
            await response(scope, receive, send)
        finally:
            self._held -= held.bytes

    async def _take(self, scope: Scope, receive: Receive, send: Send, held: _Held) -> None:
        kind = header(scope, b"content-type").partition(b";")[0].strip().lower()
        if kind != b"application/json":  # web pages of other origins may send other types without asking
            raise RefusedRequest("the body must be sent as application/json.", code="invalid_content_type")
        try:
            async with asyncio.timeout(self._seconds):
                body = await self._body(scope, receive, held)
        except TimeoutError:
            raise RefusedRequest(
                f"the request did not arrive within {self._seconds:g} seconds.", status=408, code="timeout"
            ) from None
        if body is None:
            return
        chat = scope["path"] == CHAT
        if len(body) <= _SMALL:
            body = self._clean(body, chat=chat)
        else:
            body = await asyncio.get_running_loop().run_in_executor(self._parser, self._clean, body, chat)
        async with self._places:
            await self._app(_with_length(scope, len(body)), _once(body, receive), send)

    async def _body(self, scope: Scope, receive: Receive, held: _Held) -> bytes | None:
        """The whole body; None where the client went away before it had sent it."""
        announced = header(scope, b"content-length")
        if announced.isdigit() and int(announced[:20]) > self._limits.body_bytes:
            raise self._too_large()
        parts = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            held.bytes += len(part)
            self._held += len(part)
            if held.bytes > self._limits.body_bytes:
                raise self._too_large()
            if self._held > max(_MAX_HELD, self._limits.body_bytes):
                raise NoPlace
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    def _too_large(self) -> RefusedRequest:
        most = self._limits.body_bytes
        return RefusedRequest(
            f"the request is too large; {most} bytes are allowed.", status=413, code="request_too_large"
        )

    def _clean(self, body: bytes, chat: bool) -> bytes:
        document = checked(read_body(body), chat=chat, limits=self._limits)
        try:
            return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            raise RefusedRequest("body: a number in it is too large.", code="invalid_json") from None


class _Held:
    """How many bytes of a body are held."""

    bytes = 0


def _with_length(scope: MutableMapping[str, Any], length: int) -> MutableMapping[str, Any]:
    headers = [(name, value) for name, value in scope.get("headers", ()) if name.lower() in _HEADERS]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


def _once(body: bytes, receive: Receive) -> Receive:
    """Gives the body first, and then what else the client says, which is that it has gone away."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message
