"""Applies an interface: tools → tools, system text → system text, result → result. Pure functions.

The plain interface changes nothing. Additions come from public documentation, the class of an error, and the
guidelines, never from a ground truth.
"""

import copy
from collections.abc import Mapping
from functools import lru_cache

from envs.dialects.base import Dialect
from envs.interface.value import CueKind, Interface, RecoveryLevel
from envs.task import JSON, Parameter, ToolDoc
from envs.trace import Availability, CallRecord, ViolationKind

HINT = "[HINT]"
"""Prefix of every line of recovery feedback."""

_CACHED = 1024
"""Rendered lists of tools in the cache: about one per task, with some 20,000 characters."""

_VIOLATION_HINTS: Mapping[ViolationKind, str] = {
    ViolationKind.MISSING: "a required argument is missing",
    ViolationKind.UNKNOWN: "an argument is not in the tool's documentation",
    ViolationKind.TYPE: "an argument has the wrong type",
    ViolationKind.ENUM: "an argument's value is not one of the documented choices",
    ViolationKind.HIDDEN_RULE: "an argument's value has not the form that the tool takes",
}


@lru_cache(maxsize=_CACHED)
def show_tools(interface: Interface, tools: tuple[ToolDoc, ...]) -> tuple[ToolDoc, ...]:
    """The tools with the interface's schema cues written into their documents."""
    if not interface.schema_cues:
        return tools
    return tuple(_show_tool(interface, tool) for tool in tools)


@lru_cache(maxsize=_CACHED)
def render_tools(interface: Interface, dialect: Dialect, tools: tuple[ToolDoc, ...]) -> str:
    """The text that shows the tools, cached for all dialogues of a group."""
    return dialect.render_tools(show_tools(interface, tools))


def show_system(interface: Interface, dialect: Dialect) -> str:
    """The text before the dialogue: the format cue and the guidelines; empty if plain."""
    parts = [dialect.call_format] if any(cue.kind is CueKind.FORMAT for cue in interface.schema_cues) else []
    if interface.guidelines:
        parts.append(guidelines_text(interface))
    return "\n\n".join(parts)


def guidelines_text(interface: Interface) -> str:
    """The guidelines under their heading."""
    return "Guidelines:\n" + "\n".join(f"- {guideline}" for guideline in interface.guidelines)


def show_result(interface: Interface, record: CallRecord, tool: ToolDoc | None) -> str:
    """A call's result with recovery feedback. `tool` is the called tool's document, if the model was shown it."""
    if interface.recovery is RecoveryLevel.NONE or record.clean:
        return record.result
    lines = [record.result]
    if record.availability is not Availability.SHOWN or tool is None:
        lines.append(f"{HINT} This tool is not available now. Use only the tools that are listed, or call none.")
        return "\n".join(lines)
    kinds = dict.fromkeys(violation.kind for violation in record.violations)
    lines += [f"{HINT} The call does not fit the tool: {_VIOLATION_HINTS[kind]}." for kind in kinds]
    if not kinds:
        lines.append(f"{HINT} The call was well-formed but failed. Read the error, mend its cause, then try again.")
    if interface.recovery is RecoveryLevel.SCHEMA:
        lines.append(f"{HINT} Documentation of {tool.name}: {_schema_line(tool)}")
    return "\n".join(lines)


def show_parse_error(interface: Interface, message: str, dialect: Dialect) -> str:
    """A parse error with recovery feedback."""
    if interface.recovery is RecoveryLevel.NONE:
        return message
    return f"{message}\n{HINT} The call could not be read. {dialect.call_format}"


def _show_tool(interface: Interface, tool: ToolDoc) -> ToolDoc:
    cues = {cue.kind for cue in interface.schema_cues if cue.concerns(tool.name)} - {CueKind.FORMAT}
    if not cues:
        return tool
    document = copy.deepcopy(dict(tool.document))
    if CueKind.REQUIRED in cues:
        needed = ", ".join(tool.required) or "none"
        document["description"] += f" Required arguments: {needed}."
    properties = document["parameters"]["properties"]
    for parameter in tool.parameters:
        if CueKind.TYPE in cues:
            _append(properties[parameter.name], f"Type: {_type_name(parameter)}.")
        if CueKind.ENUM in cues and parameter.enum:
            schema = properties[parameter.name]
            _append(schema, f"Allowed values: {', '.join(parameter.enum)}.")
            # The allowed values of an array are about its items.
            (schema["items"] if parameter.items else schema)["enum"] = list(parameter.enum)
    return ToolDoc(tool.name, tool.class_name, document, tool.parameters)


def _append(schema: dict[str, JSON], sentence: str) -> None:
    schema["description"] = f"{schema.get('description', '').rstrip()} {sentence}".lstrip()


def _type_name(parameter: Parameter) -> str:
    return f"array of {parameter.items.type}" if parameter.items else str(parameter.type)


def _schema_line(tool: ToolDoc) -> str:
    shown = []
    for parameter in tool.parameters:
        text = f"{parameter.name} ({_type_name(parameter)}, {'required' if parameter.required else 'optional'}"
        shown.append(text + (f", one of {', '.join(parameter.enum)})" if parameter.enum else ")"))
    return "; ".join(shown) or "no arguments"
