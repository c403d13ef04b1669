"""Settings in plain English: what a field allows, the one sentence for a value that it does not, and old names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from envs.errors import UserError, unknown_value

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

KEYS: Mapping[str, Mapping[str, str]] = {"environment": {"bfcl_split": "division"}}
"""Section → old key → key."""

OFFICIAL_RESULTS = "--bfcl-results"
"""The old name of `--official-results` of `seal-ray evaluate`."""


def current(section: str, key: str) -> str:
    """The name of a key, which may be given by an old one."""
    return KEYS.get(section, {}).get(key, key)


def with_current_keys(section: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A section's values under the names that their keys have. Raises `UserError` where a setting is given twice."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = current(section, str(key))
        if name in found:
            old = next(each for each in values if current(section, str(each)) == name != each)
            raise UserError(f"{section}.{old}: this is the old name of {section}.{name}; give one of them.")
        found[name] = value
    return found


_UNKNOWN = ("literal_error", "enum")


def allowed(field: FieldInfo) -> str:
    """What a field takes, with its bounds: "a whole number of at least 1, or None (null in YAML)"."""
    return _allowed(field.annotation, field.metadata)


def takes_text(field: FieldInfo) -> bool:
    return str in _members(field.annotation)


def complaint(
    section: str, fields: Mapping[str, FieldInfo], values: Mapping[str, Any], problem: ErrorDetails
) -> UserError:
    """The sentence for the problem that pydantic found in these values of a section."""
    key, *inside = problem["loc"]
    field = fields[str(key)]
    name, value, wanted = f"{section}.{key}", problem["input"], allowed(field)
    if problem["type"] in _UNKNOWN and isinstance(value, str):
        return unknown_value(name, value, _choices(field.annotation))
    if inside and isinstance(values[str(key)], Mapping):
        if inside[-1] == "[key]":
            return UserError(f"{name}: {value!r:.80} does not fit; its keys must be text.")
        name, wanted = f"{name}.{inside[0]}", _allowed(get_args(field.annotation)[1], ())
    elif inside:
        value = values[str(key)]
    if problem["type"] == "finite_number":
        wanted = wanted.replace("a number", "a finite number", 1)
    return UserError(f"{name}: {value!r:.80} does not fit; it must be {wanted}.")


def _allowed(annotation: Any, metadata: Iterable[Any]) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _allowed(arguments[0], arguments[1:])
    if origin in (Union, UnionType):
        members = [_allowed(each, metadata) for each in arguments if each is not NoneType]
        return " or ".join(members) + (", or None (null in YAML)" if NoneType in arguments else "")
    if choices := _choices(annotation) if origin is not list else ():
        return _or(choices)
    bounds = _bounds(metadata)
    if annotation is bool:
        return "true or false"
    if annotation in (int, float):
        return _number("a whole number" if annotation is int else "a number", bounds)
    if annotation is str:
        return "text"
    if annotation is Any:
        return "any value"
    if origin is list:
        return _list(arguments[0], least=bounds.get("min_length", 0))
    if origin is dict:
        return f"a mapping from text to {_allowed(arguments[1], ())}"
    raise TypeError(f"no words for {annotation}")


def _number(what: str, bounds: Mapping[str, float]) -> str:
    match bounds:
        case {"ge": least, "le": most}:
            return f"{what} from {least:g} to {most:g}"
        case {"gt": least, "le": most}:
            return f"{what} above {least:g} and at most {most:g}"
        case {"ge": least}:
            return f"{what} of at least {least:g}"
        case {"gt": least}:
            return f"{what} above {least:g}"
    return what


def _list(item: Any, *, least: float) -> str:
    choices = _choices(item)
    what = f"of {', '.join(choices)}" if choices else "texts"
    return f"a list of {'one' if least else 'zero'} or more {what}"


def _choices(annotation: Any) -> tuple[str, ...]:
    """The values of a literal, an enum, or a list of one; nothing for other types."""
    for each in _members(annotation):
        if get_origin(each) is Annotated:
            return _choices(get_args(each)[0])
        if get_origin(each) is Literal:
            return tuple(map(str, get_args(each)))
        if get_origin(each) is list:
            return _choices(get_args(each)[0])
        if isinstance(each, type) and issubclass(each, Enum):
            return tuple(str(member.value) for member in each)
    return ()


def _members(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else (annotation,)


def _bounds(metadata: Iterable[Any]) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in metadata:
        if isinstance(each, FieldInfo):
            found |= _bounds(each.metadata)
        for name in ("ge", "gt", "le", "min_length"):
            if (value := getattr(each, name, None)) is not None:
                found[name] = value
    return found


def _or(names: Iterable[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} or {last}" if first else last
