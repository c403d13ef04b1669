"""How a request comes in: its body is read within bounds of size and time, checked, and gets a place in the queue."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor

from starlette.types import ASGIApp, Receive, Scope, Send

from seal_ray.serving.bodies import Bodies, once, with_length
from seal_ray.serving.errors import header, overloaded, refused
from seal_ray.serving.fields import checked
from seal_ray.serving.limits import Limits, RefusedRequest, read_body
from seal_ray.serving.places import NoPlace, Places

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
_SMALL = 65_536
"""Bytes of a body that is parsed at once; larger ones are parsed in a thread, one after the other."""
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
        self._bodies = Bodies(limits.body_bytes, seconds=seconds)
        self._parser = ThreadPoolExecutor(1, thread_name_prefix="parse")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in (CHAT, COMPLETIONS):
            await self._app(scope, receive, send)
            return
        try:
            await self._take(scope, receive, send)
        except RefusedRequest as error:
            await refused(error)(scope, receive, send)
        except NoPlace:
            await overloaded()(scope, receive, send)

    async def _take(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = header(scope, b"content-type").partition(b";")[0].strip().lower()
        if kind != b"application/json":  # web pages of other origins may send other types without asking
            raise RefusedRequest("the body must be sent as application/json.", code="invalid_content_type")
        async with self._bodies.of(scope, receive) as body:
            if body is None:
                return
            chat = scope["path"] == CHAT
            if len(body) <= _SMALL:
                body = self._clean(body, chat=chat)
            else:
                body = await asyncio.get_running_loop().run_in_executor(self._parser, self._clean, body, chat)
            headers = [(name, value) for name, value in scope.get("headers", ()) if name.lower() in _HEADERS]
            async with self._places.one():
                await self._app(with_length({**scope, "headers": headers}, len(body)), once(body, receive), send)

    def _clean(self, body: bytes, chat: bool) -> bytes:
        document = checked(read_body(body), chat=chat, limits=self._limits)
        try:
            return json.dumps(document, ensure_ascii=False, allow_nan=False).encode()
        except ValueError:
            raise RefusedRequest("body: a number in it is too large.", code="invalid_json") from None
