"""Errors as OpenAI's clients read them."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from starlette.responses import JSONResponse

from seal_ray.serving.limits import RefusedRequest


def error_response(status: int, message: str, code: str | None = None, param: str | None = None) -> JSONResponse:
    """An error in OpenAI's form."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind, "param": param, "code": code}}, status)


def refused(error: RefusedRequest) -> JSONResponse:
    """The answer to a request that is refused."""
    return error_response(error.status, error.message, error.code, error.param)


def overloaded() -> JSONResponse:
    """The answer to a request that finds no place to wait in."""
    response = error_response(503, "too many requests wait already; send it again later.", "overloaded")
    response.headers["Retry-After"] = "5"
    return response


def header(scope: MutableMapping[str, Any], name: bytes) -> bytes:
    """The first header of that name in lower case, or nothing."""
    return next((bytes(value) for key, value in scope.get("headers", ()) if key.lower() == name), b"")
