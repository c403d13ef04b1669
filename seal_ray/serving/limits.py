"""The limits of a request and its JSON text, and the errors beyond them in OpenAI's form."""

import json
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.responses import JSONResponse

from envs.errors import UserError
from envs.text import depth

MAX_VALUES = 100_000
"""Values in a request's JSON: parsing more takes a thread for seconds, and far more memory than the text."""
MAX_DEPTH = 64
"""Levels of lists and objects in a request's JSON."""
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""A string of a JSON text; one without an end reaches to the text's, so that each character is read once."""
_SEPARATORS = (",", "[", "{")
SEND_AGAIN = {"Retry-After": "5"}
"""Header of the answer to a request that should be sent again: when, in seconds."""


class RefusedRequest(UserError):
    """A request that is answered with an error: status, one sentence, and OpenAI's `param` and `code`."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def response(self) -> JSONResponse:
        headers = SEND_AGAIN if self.status == 503 else None
        return error_response(self.status, str(self), self.code, self.param, headers)


class NoPlace(RefusedRequest):
    """Too many requests are waiting: this one must be sent again later."""

    def __init__(self) -> None:
        super().__init__("too many requests wait already; send it again later.", status=503, code="overloaded")


def wrong(place: str, reason: str, code: str = "invalid_type") -> RefusedRequest:
    """The error of one field of a request."""
    return RefusedRequest(f"{place}: {reason}.", param=place, code=code)


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
class RequestLimits:
    """Limits of one request: `body_bytes` in all, `messages`, `tools`, and `context` tokens."""

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
    if _count_values(text) > MAX_VALUES:
        raise RefusedRequest(f"body: it has too many values; {MAX_VALUES} are allowed.", code="array_above_max_length")
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedRequest(f"body: it is not valid JSON ({str(error)[:200]}).", code="invalid_json") from None
    if depth(value) > MAX_DEPTH:
        raise RefusedRequest(f"body: it is nested too deeply; {MAX_DEPTH} levels are allowed.", code="invalid_json")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _count_values(text: str) -> int:
    """About how many values a JSON text holds, counted up to a little more than are allowed.

    Each but the first has a separator before it, or before its key.
    """
    count = 1 + sum(map(text.count, _SEPARATORS))
    if count <= MAX_VALUES:
        return count
    count, end = 1, 0
    for match in _STRING.finditer(text):  # separators inside strings do not count
        begin, last = match.span()
        count += sum(text.count(mark, end, begin) for mark in _SEPARATORS)
        end = last
        if count > MAX_VALUES:
            return count
    return count + sum(text.count(mark, end) for mark in _SEPARATORS)
