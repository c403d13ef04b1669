"""Interfaces as JSON, with validation: the only way in for files and curators' proposals."""

import json
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from envs.dialects.base import read_json
from envs.errors import UserError, check_known
from envs.interface.value import MAX_GUIDELINES, Interface, SchemaCue, guideline_fault
from envs.received import read_text
from envs.sources import all_tools
from envs.task import JSON

_WANTED: Mapping[str, str] = {
    "dataclass_type": "a JSON object",
    "tuple_type": "a list",
    "too_long": f"a list of at most {MAX_GUIDELINES}",
    "invalid_key": "a string",
}
"""Type of pydantic's error → the allowed values, if pydantic would name Python types."""


_FORM = TypeAdapter(Interface)


def interface_to_dict(interface: Interface) -> dict[str, JSON]:
    """The JSON form, with every key present."""
    return {
        "schema_cues": [{"kind": str(cue.kind), "tools": list(cue.tools)} for cue in interface.schema_cues],
        "recovery": str(interface.recovery),
        "guidelines": list(interface.guidelines),
        "fade": interface.fade,
    }


def interface_from_dict(value: JSON, *, source: str = "interface") -> Interface:
    """The interface in a JSON value. Raises `UserError` with the key, the value and the allowed values."""
    try:
        interface = _FORM.validate_python(value)
    except ValidationError as error:
        raise UserError(f"{source}: {_first_problem(error)}") from None
    for place, cue in enumerate(interface.schema_cues):
        check_known(f"{source}: schema_cues.{place}.tools: tool", all_tools(), *cue.tools)
    for text in interface.guidelines:
        fault = guideline_fault(text)
        if fault is not None:
            raise UserError(f"{source}: guidelines: a guideline {fault}: {text[:40]!r}.")
    cues = {SchemaCue(cue.kind, tuple(sorted(set(cue.tools)))) for cue in interface.schema_cues}
    return replace(interface, schema_cues=tuple(sorted(cues)))


def interface_from_json(text: str, *, source: str = "interface") -> Interface:
    """As `interface_from_dict`, from JSON text of any origin."""
    try:
        value = read_json(text)
    except ValueError as error:
        raise UserError(f"{source}: not valid JSON ({error}).") from None
    return interface_from_dict(value, source=source)


def load_interface(path: Path) -> Interface:
    """The interface in a JSON file. Raises `UserError` if the file cannot be read or is invalid."""
    return interface_from_json(read_text(path, "interface"), source=str(path))


def dump_interface(interface: Interface) -> str:
    """The JSON text, one line, keys in a fixed order."""
    return json.dumps(interface_to_dict(interface), ensure_ascii=False)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    place = [str(part) for part in problem["loc"]] or ["document"]
    key = ".".join(place)
    if problem["type"] == "unexpected_keyword_argument":
        allowed = ", ".join(field.name for field in fields(SchemaCue if len(place) > 1 else Interface))
        within = f"{'.'.join(place[:-1])}: " if len(place) > 1 else ""
        return f"{within}key {place[-1]!r:.80} is not known; allowed are {allowed}."
    if problem["type"] == "missing":
        return f"{key}: this key is missing."
    wanted = _WANTED.get(problem["type"], problem["msg"].removeprefix("Input should be "))
    if key == "fade":
        wanted = "a number from 0 to 1"
    return f"{key}: {problem['input']!r:.80} does not fit; it must be {wanted}."
