"""Reads tool documents (JSON) into typed values, and checks calls against them."""

import re
from collections.abc import Mapping
from contextlib import suppress

from pydantic import TypeAdapter

from envs.task import JSON, Parameter, ParameterType, ToolCall, ToolDoc
from envs.trace import SchemaViolation, ViolationKind

_TEXTS = TypeAdapter(tuple[str, ...])
_ENUM = re.compile(r"\[Enum\]:\s*(.+)$", re.DOTALL)


def parse_enum(description: str) -> tuple[str, ...]:
    """The allowed values in an "[Enum]: …" description, in order: a JSON list, or words separated by commas."""
    match = _ENUM.search(description)
    if match is None:
        return ()
    text = match.group(1).strip().rstrip(".").strip()
    with suppress(ValueError):
        return _TEXTS.validate_json(text)
    if text.startswith("["):
        text = text[1:].removesuffix("]")
    values = (value.strip().strip("\"'").strip() for value in text.split(","))
    return tuple(value for value in values if value)


def parse_parameter(name: str, schema: Mapping[str, JSON], *, required: bool) -> Parameter:
    items = schema.get("items")
    properties = schema.get("properties", {})
    needed = schema.get("required", ())
    description = schema.get("description", "")
    return Parameter(
        name=name,
        type=ParameterType(schema["type"]),
        description=description,
        required=required,
        enum=parse_enum(description),
        items=parse_parameter("items", items, required=True) if items else None,
        properties=tuple(parse_parameter(key, value, required=key in needed) for key, value in properties.items()),
    )


def read_tool(document: Mapping[str, JSON], class_name: str = "") -> ToolDoc:
    """The tool of a JSON document; `class_name` is the part of the world that it belongs to."""
    schema = document["parameters"]
    parameters = tuple(
        parse_parameter(name, value, required=name in schema["required"])
        for name, value in schema["properties"].items()
    )
    return ToolDoc(document["name"], class_name, document, parameters)


def check_call(call: ToolCall, tool: ToolDoc) -> tuple[SchemaViolation, ...]:
    """Every way in which the call breaks the tool's schema or a hidden rule: missing arguments first.

    It never changes an outcome; it explains one.
    """
    violations = [SchemaViolation(ViolationKind.MISSING, name) for name in tool.required if name not in call.arguments]
    for name, value in call.arguments.items():
        parameter = tool.parameter(name)
        if parameter is None:
            violations.append(SchemaViolation(ViolationKind.UNKNOWN, name))
        elif value is None and not parameter.required:
            continue  # the simulators' own default for many optional arguments
        elif not _has_type(value, parameter):
            violations.append(SchemaViolation(ViolationKind.TYPE, name))
        elif not _in_enum(value, parameter):
            violations.append(SchemaViolation(ViolationKind.ENUM, name))
        elif (rule := parameter.hidden_rule) is not None and not re.fullmatch(rule.pattern, str(value)):
            violations.append(SchemaViolation(ViolationKind.HIDDEN_RULE, name, rule.name))
    return tuple(violations)


def _has_type(value: JSON, parameter: Parameter) -> bool:
    match parameter.type:
        case ParameterType.STRING:
            return isinstance(value, str)
        case ParameterType.BOOLEAN:
            return isinstance(value, bool)
        case ParameterType.INTEGER:
            return isinstance(value, int) and not isinstance(value, bool)
        case ParameterType.FLOAT:
            return isinstance(value, int | float) and not isinstance(value, bool)
        case ParameterType.ARRAY:
            items = parameter.items
            return isinstance(value, list | tuple) and (items is None or all(_has_type(item, items) for item in value))
        case ParameterType.DICT:
            return isinstance(value, dict)


def _in_enum(value: JSON, parameter: Parameter) -> bool:
    values = value if isinstance(value, list | tuple) else [value]
    return not parameter.enum or all(item in parameter.enum for item in values)
