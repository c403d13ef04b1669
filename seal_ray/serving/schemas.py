"""The schemas of requests: which keywords a grammar enforces, and how much it may cost to compile.

vLLM compiles a schema before the first token, with llguidance. Whatever that would refuse is refused here, before a
stream starts, by the name of the property. The bounds are measured: no schema within them compiles for a second.
"""

import json
import re
import time
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from envs.text import depth
from seal_ray.serving.limits import wrong

MAX_SCHEMA_CHARACTERS = 65_536
MAX_SCHEMA_DEPTH = 24
MAX_LENGTH, MAX_COUNT = 100_000, 1_000
"""The largest length of a string, and the largest number of items or properties, in a schema."""
MAX_PATTERN = 256
_MAX_NUMBER = 2**63
_MAX_TOGETHER = 8
"""Schemas of one `allOf`: their alternatives multiply."""
_NAMED = ("properties", "$defs", "definitions")
"""Keywords whose keys are names and whose values are schemas."""
_DATA = ("enum", "const", "default", "examples", "required", "title", "description")
_COMPOSED = {"$ref", "anyOf", "oneOf", "allOf"}
_LENGTHS = ("minLength", "maxLength")
_COUNTS = ("minItems", "maxItems", "minProperties", "maxProperties", "multipleOf")
_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri")
"""The values of `format` that llguidance enforces. Others are annotations."""
_NOT_ENFORCED = (
    *("not", "if", "then", "else", "contains", "minContains", "maxContains", "uniqueItems", "propertyNames"),
    *("patternProperties", "dependencies", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
    *("unevaluatedItems", "$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor"),
)
_ATOM = r"(?:\\[dDwWsS]|\\[^a-zA-Z0-9]|\[\^?(?:\\[dDwWsS]|\\[^a-zA-Z0-9]|[^\]\[\\])+\]|[^\\^$|?*+()\[\]{}])"
_FIXED = rf"(?:{_ATOM}(?:\{{[0-9]{{1,3}}\}}|(?![{{?*+])))*"
_LOOSE = rf"(?:{_ATOM}[*+?]?){{0,8}}"
_RANGE = rf"{_ATOM}\{{[0-9]{{1,3}},[0-9]{{0,3}}\}}{_ATOM}{{0,3}}"
_PATTERN = re.compile(rf"\^(?:{_FIXED}{_ATOM}\?){{0,2}}{_FIXED}(?:{_RANGE}|{_LOOSE})\$?|{_LOOSE}\$?")
"""Regular expressions whose automaton is small: no groups, and little behind a part of variable length."""
_LIMITS = LLParserLimits(max_grammar_size=100_000, initial_lexer_fuel=200_000)
_BYTES = LLTokenizer("byte")
_SECONDS = 0.2
"""How long the property that makes a schema fail is searched."""


def check_schema_size(characters: int, place: str) -> None:
    """Raises `RefusedRequest` for a schema with too many characters."""
    if characters > MAX_SCHEMA_CHARACTERS:
        reason = f"the schema has {characters} characters; {MAX_SCHEMA_CHARACTERS} are allowed"
        raise wrong(place, reason, "invalid_schema")


def grammar_schema(schema: dict[str, Any], place: str, *, strict: bool = False) -> dict[str, Any]:
    """The part of a schema that a grammar enforces, which is without unknown values of `format`.

    Other keywords that no grammar enforces are left out too, unless the schema is strict. Raises `RefusedRequest` with
    the property's name for a strict schema that has one, and for a schema beyond the bounds.
    """
    check_schema_size(len(json.dumps(schema)), place)
    if depth(schema) > MAX_SCHEMA_DEPTH:
        raise wrong(place, f"the schema is nested too deeply; {MAX_SCHEMA_DEPTH} levels are allowed", "invalid_schema")
    enforced: dict[str, Any] = _enforced(schema, place, strict)
    return enforced


def _enforced(schema: Any, place: str, strict: bool) -> Any:
    if isinstance(schema, list):
        return [_enforced(each, f"{place}[{index}]", strict) for index, each in enumerate(schema)]
    if not isinstance(schema, dict):
        return schema
    enforced: dict[str, Any] = {}
    for key, value in schema.items():
        here = f"{place}.{key[:80]}"
        most = MAX_COUNT if key in _COUNTS else MAX_LENGTH if key in _LENGTHS else _MAX_NUMBER
        if key in _DATA:
            enforced[key] = value
        elif key in _NAMED and isinstance(value, dict):
            enforced[key] = {name: _enforced(each, f"{here}.{name[:80]}", strict) for name, each in value.items()}
        elif key == "x-guidance":
            raise wrong(here, "the grammar's own options are not served", "invalid_schema")
        elif key in _NOT_ENFORCED or (key == "pattern" and not _is_small(value)):
            if strict:
                raise wrong(here, "it cannot be enforced, and the schema is strict", "invalid_schema")
        elif isinstance(value, int | float) and abs(value) > most:
            raise wrong(here, f"it is too large; {most} is allowed", "invalid_schema")
        elif key == "allOf" and isinstance(value, list) and len(value) > _MAX_TOGETHER:
            raise wrong(here, f"it has {len(value)} schemas; {_MAX_TOGETHER} are allowed", "invalid_schema")
        elif key != "format" or value in _FORMATS:
            # The backend has alternatives that exclude each other only if it can prove that they do.
            kept = "anyOf" if key == "oneOf" and not strict and "anyOf" not in schema else key
            enforced[kept] = _enforced(value, here, strict)
    # vLLM closes such objects before it compiles: a small model would add properties without end.
    return {"additionalProperties": False, **enforced} if isinstance(enforced.get("properties"), dict) else enforced


def _is_small(pattern: Any) -> bool:
    return isinstance(pattern, str) and len(pattern) <= MAX_PATTERN and _PATTERN.fullmatch(pattern) is not None


def constraints(request: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The schemas of a request that become grammars, each with its place. Raises `RefusedRequest`."""
    if request.get("response_format", {}).get("type") == "json_schema":
        yield "response_format.json_schema.schema", request["response_format"]["json_schema"]["schema"]
    if "json" in request.get("structured_outputs", {}):
        yield "structured_outputs.json", request["structured_outputs"]["json"]
    choice = request.get("tool_choice", "auto")
    name = choice["function"]["name"] if isinstance(choice, dict) else None
    functions = [tool["function"] for tool in request.get("tools", ())] if name or choice == "required" else []
    called = [(index, each) for index, each in enumerate(functions) if name in (None, each["name"])]
    check_schema_size(sum(len(json.dumps(each["parameters"])) for _, each in called), "tools")
    for index, each in called:
        place, schema = f"tools[{index}].function.parameters", each["parameters"]
        if not schema.get("properties", True) and not _COMPOSED.isdisjoint(schema):
            del schema["properties"]  # it would be closed, and nothing fit it
        enforced = grammar_schema(schema, place, strict=each.get("strict") is True)
        if name is None and any(not ref.startswith("#/$defs/") for ref in _references(enforced)):
            reason = "with tool_choice 'required' only references to '#/$defs/…' are served"
            raise wrong(place, reason, "invalid_schema")
        yield place, enforced


def _references(schema: Any) -> Iterator[str]:
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key == "$ref" and isinstance(value, str):
            yield value
        elif key not in _DATA:
            yield from _references(value)
    for each in schema if isinstance(schema, list) else ():
        yield from _references(each)


def check_compiles(schema: Mapping[str, Any], place: str) -> None:
    """Raises `RefusedRequest` for a schema that llguidance refuses, with the name of the property if it is found."""
    error = _compile_error(json.dumps(schema))
    if error:
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        place = _failing_place(schema, shared, place, time.monotonic() + _SECONDS)
        raise wrong(place, f"no grammar can be made of it ({error})", "invalid_schema")


@lru_cache(256)
def _compile_error(text: str) -> str:
    grammar = LLMatcher.grammar_from_json_schema(text)
    matcher = LLMatcher(_BYTES, grammar, log_level=0, limits=_LIMITS)
    if not matcher.is_error():
        matcher.compute_bitmask()
    error: str = matcher.get_error().partition("\n")[0]
    return "no value fits it" if error.startswith("NoExtension") else error[:200]


def _failing_place(schema: Mapping[str, Any], shared: Mapping[str, Any], place: str, deadline: float) -> str:
    """The place of the innermost part that does not compile alone, or of a part around it if time runs out."""
    for key, value in schema.items():
        named = value.items() if key in _NAMED and isinstance(value, dict) else [("", value)]
        parts = enumerate(value) if isinstance(value, list) else named
        for name, part in parts if key not in _DATA else ():
            late = not isinstance(part, dict) or time.monotonic() > deadline
            if not late and _compile_error(json.dumps({**part, **shared})):
                return _failing_place(part, shared, f"{place}.{key}.{name}".rstrip(".")[:500], deadline)
    return place
