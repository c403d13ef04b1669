"""Reading the body of a request: whole, in good time, and not more of all bodies together than memory has room for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.types import Message, Receive, Scope

from seal_ray.serving.errors import header
from seal_ray.serving.limits import RefusedRequest
from seal_ray.serving.places import NoPlace

_MAX_HELD = 256 << 20
"""Bytes of all bodies that are held at a time."""


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
        held = _Held()
        try:
            try:
                async with asyncio.timeout(self._seconds):
                    body = await self._read(scope, receive, held)
            except TimeoutError:
                raise RefusedRequest(
                    f"the request did not arrive within {self._seconds:g} seconds.", status=408, code="timeout"
                ) from None
            yield body
        finally:
            self._held -= held.bytes

    async def _read(self, scope: Scope, receive: Receive, held: _Held) -> bytes | None:
        announced = header(scope, b"content-length")
        if announced.isdigit() and int(announced[:20]) > self._most:
            raise self._too_large()
        parts = []
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            held.bytes += len(part)
            self._held += len(part)
            if held.bytes > self._most:
                raise self._too_large()
            if self._held > max(_MAX_HELD, self._most):
                raise NoPlace
            parts.append(part)
            if not message.get("more_body"):
                return b"".join(parts)

    def _too_large(self) -> RefusedRequest:
        return RefusedRequest(
            f"the request is too large; {self._most} bytes are allowed.", status=413, code="request_too_large"
        )


class _Held:
    """How many bytes of a body are held."""

    bytes = 0


def with_length(scope: MutableMapping[str, Any], length: int) -> MutableMapping[str, Any]:
    """The scope of a request whose body has this length."""
    kept = [(name, value) for name, value in scope.get("headers", ()) if name.lower() not in _OF_THE_BODY]
    return {**scope, "headers": [*kept, (b"content-length", str(length).encode())]}


_OF_THE_BODY = (b"content-length", b"transfer-encoding")


def once(body: bytes, receive: Receive) -> Receive:
    """Gives the body first, and then the client's disconnect."""
    given = False

    async def next_message() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message
