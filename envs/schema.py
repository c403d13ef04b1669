"""Checking a call against its tool's public documentation. This never changes an outcome; it explains one."""

from __future__ import annotations

from envs.task import JSON, Parameter, ParameterType, ToolCall, ToolDoc
from envs.trace import SchemaViolation, ViolationKind


def check_call(call: ToolCall, tool: ToolDoc) -> tuple[SchemaViolation, ...]:
    """Every way in which the call breaks the tool's schema: missing arguments first, then the given ones in order."""
    found = [SchemaViolation(ViolationKind.MISSING, name) for name in tool.required if name not in call.arguments]
    for name, value in call.arguments.items():
        parameter = tool.parameter(name)
        if parameter is None:
            found.append(SchemaViolation(ViolationKind.UNKNOWN, name))
        elif value is None and not parameter.required:
            continue  # the simulators' own default for many optional arguments
        elif not _has_type(value, parameter):
            found.append(SchemaViolation(ViolationKind.TYPE, name))
        elif not _in_enum(value, parameter):
            found.append(SchemaViolation(ViolationKind.ENUM, name))
    return tuple(found)


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
    if not parameter.enum:
        return True
    values = value if isinstance(value, list | tuple) else [value]
    return all(item in parameter.enum for item in values)
