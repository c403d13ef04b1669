"""The limits of a request, its JSON text and its schemas, and the errors beyond them in OpenAI's form."""

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

MAX_SCHEMA_CHARACTERS = 65_536
MAX_SCHEMA_DEPTH = 24
MAX_COUNT = 1_000
"""The largest number of characters, items or properties in a schema."""
_MAX_NUMBER = 10**15
_MAX_TOGETHER = 8
"""Schemas of one `allOf`: their alternatives multiply."""
_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose keys are names and whose values are schemas."""
_DATA = ("enum", "const", "default", "examples", "required", "title", "description")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "multipleOf")
_NOT_SERVED = ("pattern", "patternProperties", "propertyNames", "not", "if", "x-guidance")


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


def check_schema_size(characters: int, place: str) -> None:
    """Raises `RefusedRequest` for a schema with too many characters."""
    if characters > MAX_SCHEMA_CHARACTERS:
        reason = f"the schema has {characters} characters; {MAX_SCHEMA_CHARACTERS} are allowed"
        raise wrong(place, reason, "invalid_schema")


def check_schema(schema: Any, place: str) -> None:
    """Raises `RefusedRequest` for a schema whose grammar might take long to compile.

    vLLM compiles a schema before the first token, and nothing stops a compiler that takes for ever. So the size of
    schemas is bounded, and regular expressions are refused: a short one can stand for an automaton of any size.
    """
    check_schema_size(len(json.dumps(schema)), place)
    if depth(schema) > MAX_SCHEMA_DEPTH:
        raise wrong(place, f"the schema is nested too deeply; {MAX_SCHEMA_DEPTH} levels are allowed", "invalid_schema")
    _check_keywords(schema, place)


def _check_keywords(schema: Any, place: str) -> None:
    if isinstance(schema, list):
        for each in schema:
            _check_keywords(each, place)
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in _DATA:
            continue
        if key in _NOT_SERVED:
            raise wrong(place, f"{key!r} is not served in schemas", "invalid_schema")
        if key in _NAMED and isinstance(value, dict):
            _check_keywords(list(value.values()), place)
            continue
        if key == "allOf" and isinstance(value, list) and len(value) > _MAX_TOGETHER:
            raise wrong(place, f"'allOf' has {len(value)} schemas; {_MAX_TOGETHER} are allowed", "invalid_schema")
        most = MAX_COUNT if key in _COUNTS else _MAX_NUMBER
        if isinstance(value, int | float) and abs(value) > most:
            raise wrong(place, f"{key[:80]!r} is too large; {most} is allowed", "invalid_schema")
        _check_keywords(value, place)
