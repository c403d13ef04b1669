"""Authentication: the key that requests must carry. The server holds its SHA-256 only."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from seal_ray.serving.errors import error_response, header


def digest_of(key: str) -> str:
    """The hash of a key, as the HTTP front checks it."""
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
        if scope["type"] == "http" and not has_key(scope, self._digest):
            response = error_response(
                401, "the API key is missing or wrong; send it as Authorization: Bearer KEY.", "invalid_api_key"
            )
            response.headers["WWW-Authenticate"] = "Bearer"
            await response(scope, receive, send)
        else:
            await self._app(scope, receive, send)
