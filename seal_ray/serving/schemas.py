"""JSON schemas that answers are held to: only those whose grammar is compiled within a moment.

vLLM compiles a schema before the first token, and nothing stops a compiler that takes for ever. So the size of schemas
is bounded, and regular expressions are refused: a short one can stand for an automaton of any size.
"""

from __future__ import annotations

import json
from typing import Any

from seal_ray.serving.limits import RefusedRequest, depth

MAX_SCHEMA_CHARACTERS = 65_536
MAX_SCHEMA_DEPTH = 24
MAX_COUNT = 1_000
"""The largest number of characters, items or properties that a schema may ask for."""
_MAX_NUMBER = 10**15
_MAX_TOGETHER = 8
"""Schemas of one `allOf` at most: their alternatives multiply."""

_NAMED = ("properties", "$defs", "definitions", "dependentSchemas")
"""Keywords whose keys are names and whose values are schemas."""
_DATA = ("enum", "const", "default", "examples", "required", "title", "description")
_COUNTS = ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "multipleOf")
_NOT_SERVED = ("pattern", "patternProperties", "propertyNames", "not", "if")


def check_schema(schema: Any, place: str) -> None:
    """Raises `RefusedRequest` for a schema whose grammar might take too long to compile."""
    characters = len(json.dumps(schema))
    if characters > MAX_SCHEMA_CHARACTERS:
        raise _refused(place, f"the schema has {characters} characters; {MAX_SCHEMA_CHARACTERS} are allowed")
    if depth(schema) > MAX_SCHEMA_DEPTH:
        raise _refused(place, f"the schema is nested too deeply; {MAX_SCHEMA_DEPTH} levels are allowed")
    _check(schema, place)


def _check(schema: Any, place: str) -> None:
    if isinstance(schema, list):
        for each in schema:
            _check(each, place)
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        if key in _DATA:
            continue
        if key in _NOT_SERVED:
            raise _refused(place, f"{key!r} is not served in schemas")
        if key in _NAMED and isinstance(value, dict):
            _check(list(value.values()), place)
            continue
        if key == "allOf" and isinstance(value, list) and len(value) > _MAX_TOGETHER:
            raise _refused(place, f"'allOf' has {len(value)} schemas; {_MAX_TOGETHER} are allowed")
        if isinstance(value, int | float) and abs(value) > (MAX_COUNT if key in _COUNTS else _MAX_NUMBER):
            most = MAX_COUNT if key in _COUNTS else _MAX_NUMBER
            raise _refused(place, f"{key[:80]!r} is too large; {most} is allowed")
        _check(value, place)


def _refused(place: str, reason: str) -> RefusedRequest:
    return RefusedRequest(f"{place}: {reason}.", param=place, code="invalid_schema")
