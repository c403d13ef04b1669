"""Fields of settings in plain English: allowed values, and the sentence for a wrong value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import TypeAdapter
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from envs.errors import UserError, unknown_value

_NATIVE = {"training.lr", "training.grad_clip"}
_NATIVE_SECTIONS = {"env_runners", "learners", "fault_tolerance"}
_BOUNDS = {
    "minimum": "of at least",
    "exclusiveMinimum": "above",
    "maximum": "at most",
    "exclusiveMaximum": "below",
}


def attribute(section: str, key: str) -> str:
    """The config's attribute for a setting: RLlib's settings keep RLlib's names, others begin with the section."""
    native = section in _NATIVE_SECTIONS or f"{section}.{key}" in _NATIVE
    return key if native else f"{section}_{key}"


def allowed(field: FieldInfo) -> str:
    """The allowed values of a field, for instance "a whole number of at least 1, or None (null in YAML)"."""
    return _words(_schema(field))


def takes_text(field: FieldInfo) -> bool:
    """Whether a field takes any text."""
    return any(each.get("type") == "string" and not _choices(each) for each in _members(_schema(field)))


def complaint(
    section: str, fields: Mapping[str, FieldInfo], values: Mapping[str, Any], problem: ErrorDetails
) -> UserError:
    """The error for pydantic's problem with these values of a section."""
    key, *inside = problem["loc"]
    schema = _schema(fields[str(key)])
    name, value, wanted = f"{section}.{key}", problem["input"], _words(schema)
    if problem["type"] == "literal_error" and isinstance(value, str):
        return unknown_value(name, value, next(filter(None, map(_choices, _members(schema)))))
    if inside:
        value = values[str(key)]
    if problem["type"] == "finite_number":
        wanted = wanted.replace("a number", "a finite number", 1)
    return UserError(f"{name}: {value!r:.80} does not fit; it must be {wanted}.")


def _schema(field: FieldInfo) -> dict[str, Any]:
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind).json_schema()


def _members(schema: Mapping[str, Any]) -> list[Any]:
    return list(schema.get("anyOf", [schema]))


def _choices(schema: Mapping[str, Any]) -> list[str]:
    return schema.get("enum") or ([schema["const"]] if "const" in schema else [])


def _words(schema: Any) -> str:
    if choices := _choices(schema) if schema is not True else []:
        *first, last = choices
        return f"{', '.join(first)} or {last}" if first else last
    match schema:
        case {"anyOf": members}:
            null = {"type": "null"}
            words = " or ".join(_words(each) for each in members if each != null)
            return f"{words}, or None (null in YAML)" if null in members else words
        case {"type": "boolean"}:
            return "true or false"
        case {"type": "integer"}:
            return f"a whole number{_bounds(schema)}"
        case {"type": "number"}:
            return f"a number{_bounds(schema)}"
        case {"type": "string"}:
            return "text"
        case {"type": "array", "items": items}:
            what = f"of {', '.join(_choices(items))}" if _choices(items) else "texts"
            return f"a list of {'one' if schema.get('minItems') else 'zero'} or more {what}"
    raise TypeError(f"no words for {schema}")


def _bounds(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"minimum": least, "maximum": most}:
            return f" from {least:g} to {most:g}"
    parts = [f"{words} {schema[key]:g}" for key, words in _BOUNDS.items() if key in schema]
    return f" {' and '.join(parts)}" if parts else ""
