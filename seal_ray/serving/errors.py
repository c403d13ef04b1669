"""Errors as OpenAI's clients read them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.responses import JSONResponse


def error_response(status: int, message: str, code: str | None = None, param: str | None = None) -> JSONResponse:
    """An error in OpenAI's form."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status)


def header(scope: MutableMapping[str, Any], name: bytes) -> bytes:
    """The first header of that name in lower case, or nothing."""
    return next((bytes(value) for key, value in scope.get("headers", ()) if key.lower() == name), b"")
