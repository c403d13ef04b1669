"""The kinds of fields that a request may have: numbers, texts, lists, JSON schemas and so on, each within bounds."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from seal_ray.serving.limits import Limits, RefusedRequest, depth

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

Check = Callable[[Any, str, Limits], Any]
"""Takes a field's value, its name and the limits; returns the value to go on with, or raises `RefusedRequest`."""


def wrong(place: str, reason: str, code: str = "invalid_type") -> RefusedRequest:
    return RefusedRequest(f"{place}: {reason}.", param=place, code=code)


def number(low: float, high: float) -> Check:
    def check(value: Any, place: str, _: Limits) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(place, "it is no number")
        if not low <= value <= high or not math.isfinite(value):
            raise wrong(place, f"it must be from {low:g} to {high:g}", "out_of_range")
        return value

    return check


def whole(low: int, high: int | None) -> Check:
    """Whole numbers in these bounds; `high` None is the context."""

    def check(value: Any, place: str, limits: Limits) -> int:
        most = limits.context if high is None else high
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(place, "it is no whole number")
        if not low <= value <= most:
            raise wrong(place, f"it must be from {low} to {most}", "out_of_range")
        return value

    return check


def flag(value: Any, place: str, _: Limits) -> bool:
    if not isinstance(value, bool):
        raise wrong(place, "it is neither true nor false")
    return value


def text(most: int, least: int = 0) -> Check:
    def check(value: Any, place: str, _: Limits) -> str:
        if not isinstance(value, str):
            raise wrong(place, "it is no text")
        if not least <= len(value) <= most:
            raise wrong(
                place, f"it has {len(value)} characters; {least} to {most} are allowed", "string_above_max_length"
            )
        return value

    return check


def several(each: Check, most: int) -> Check:
    def check(value: Any, place: str, limits: Limits) -> list[Any]:
        if not isinstance(value, list):
            raise wrong(place, "it is no list")
        if len(value) > most:
            raise wrong(place, f"it has {len(value)} entries; {most} are allowed", "array_above_max_length")
        return [each(item, f"{place}[{index}]", limits) for index, item in enumerate(value)]

    return check


def object_of(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(place, "it is no object")
    return value


def check_schema(schema: Any, place: str) -> None:
    """Raises `RefusedRequest` for a schema to hold answers to whose grammar might take long to compile.

    vLLM compiles a schema before the first token, and nothing stops a compiler that takes for ever. So the size of
    schemas is bounded, and regular expressions are refused: a short one can stand for an automaton of any size.
    """
    characters = len(json.dumps(schema))
    if characters > MAX_SCHEMA_CHARACTERS:
        raise wrong(
            place, f"the schema has {characters} characters; {MAX_SCHEMA_CHARACTERS} are allowed", "invalid_schema"
        )
    if depth(schema) > MAX_SCHEMA_DEPTH:
        raise wrong(place, f"the schema is nested too deeply; {MAX_SCHEMA_DEPTH} levels are allowed", "invalid_schema")
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
            raise wrong(place, f"{key!r} is not served in schemas", "invalid_schema")
        if key in _NAMED and isinstance(value, dict):
            _check(list(value.values()), place)
            continue
        if key == "allOf" and isinstance(value, list) and len(value) > _MAX_TOGETHER:
            raise wrong(place, f"'allOf' has {len(value)} schemas; {_MAX_TOGETHER} are allowed", "invalid_schema")
        if isinstance(value, int | float) and abs(value) > (MAX_COUNT if key in _COUNTS else _MAX_NUMBER):
            most = MAX_COUNT if key in _COUNTS else _MAX_NUMBER
            raise wrong(place, f"{key[:80]!r} is too large; {most} is allowed", "invalid_schema")
        _check(value, place)
