"""How many requests Serve's HTTP proxy lets in at a time: a flood waits there, where waiting costs next to nothing.

Behind the proxy each request costs milliseconds in several processes, in the order in which they came. Serve takes this
from the environment of the process that starts the cluster; `seal-ray serve` sets it by itself (`admit`).
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import Any

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Receive, Scope, Send

from seal_ray.serving.intake import Bodies, digest_of, has_key, once, with_length
from seal_ray.serving.limits import RefusedRequest
from seal_ray.serving.queues import MAX_WAITING, Places

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
                        await self._app(with_length(scope, len(body)), once(body, receive), send)
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
