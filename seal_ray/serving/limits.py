"""The limits of a request, and the errors of those beyond them, as OpenAI's clients read them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.responses import JSONResponse

from envs.errors import UserError

MAX_VALUES = 100_000
"""Values in a request's JSON at most: parsing more takes a thread for seconds, and far more memory than the text."""
MAX_DEPTH = 64
"""Levels of lists and objects in a request's JSON at most."""

_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string of a JSON text; one without an end reaches to the text's, so that each character is looked at once."""
_SEPARATORS = (",", "[", "{")
SEND_AGAIN = {"Retry-After": "5"}
"""Header of an answer to a request that is to be sent again: when, in seconds."""


class RefusedRequest(UserError):
    """A request that is answered with an error: its status, a sentence, and OpenAI's names for place and kind."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def response(self) -> JSONResponse:
        """The answer to the request."""
        headers = SEND_AGAIN if self.status == 503 else None
        return error_response(self.status, str(self), self.code, self.param, headers)


class NoPlace(RefusedRequest):
    """Too many requests are waiting: this one must be sent again later."""

    def __init__(self) -> None:
        super().__init__("too many requests wait already; send it again later.", status=503, code="overloaded")


def error_response(
    status: int,
    message: str,
    code: str | None = None,
    param: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """An error in OpenAI's form."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    error = {"message": message, "type": kind, "param": param, "code": code}
    return JSONResponse({"error": error}, status, headers)


def header(scope: MutableMapping[str, Any], name: bytes) -> bytes:
    """The first header of that name in lower case, or nothing."""
    return next((bytes(value) for key, value in scope.get("headers", ()) if key.lower() == name), b"")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may hold at most: `body_bytes` in all, `messages`, `tools`, and `context` tokens."""

    body_bytes: int
    messages: int
    tools: int
    context: int


def read_body(body: bytes) -> Any:
    """The JSON value of a request's body, in UTF-8, parsed only if that cannot take long.

    Raises `RefusedRequest` for text that is not JSON, a number that is not finite, or too many values or levels.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedRequest("body: it is not valid UTF-8.", code="invalid_json") from None
    if _values(text) > MAX_VALUES:
        raise RefusedRequest(f"body: it has too many values; {MAX_VALUES} are allowed.", code="array_above_max_length")
    try:
        value = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(f"body: it is not valid JSON ({str(error)[:200]}).", code="invalid_json") from None
    if depth(value) > MAX_DEPTH:
        raise RefusedRequest(f"body: it is nested too deeply; {MAX_DEPTH} levels are allowed.", code="invalid_json")
    return value


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _values(text: str) -> int:
    """About how many values a JSON text holds, counted up to a little more than are allowed."""
    most = sum(map(text.count, _SEPARATORS))
    if most <= MAX_VALUES:
        return most
    found = end = 0
    for match in _STRING.finditer(text):  # separators inside strings do not count
        begin, last = match.span()
        found += 1 + sum(text.count(mark, end, begin) for mark in _SEPARATORS)
        end = last
        if found > 2 * MAX_VALUES:
            break
    # A string is a value or the key of one, and its separator was counted as well.
    return (found + sum(text.count(mark, end) for mark in _SEPARATORS)) // 2


def depth(value: Any) -> int:
    """Levels of lists and objects in a JSON value."""
    levels, inside = 0, [value]
    while inside := [each for each in inside if isinstance(each, list | dict)]:
        levels += 1
        inside = [item for each in inside for item in (each.values() if isinstance(each, dict) else each)]
    return levels
