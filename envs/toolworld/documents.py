"""Compact tool documents: the public names and parameters, with a few words instead of paragraphs."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from envs.bfcl.tools import all_tools
from envs.task import JSON, Parameter, ToolDoc

_TABLES = tomllib.loads((Path(__file__).parent / "tools.toml").read_text(encoding="utf-8"))

DESCRIPTIONS: Mapping[str, str] = _TABLES["descriptions"]
"""Tool → its description, in eight words at most."""
SUBSTITUTES: Mapping[str, frozenset[str]] = {
    tool: frozenset(others.split()) for tool, others in _TABLES["substitutes"].items()
}
"""Tool → tools that could do a part of its work. They are not shown if it is held out, so that it is missed."""


@cache
def compact_tool(name: str) -> ToolDoc:
    """The tool with its compact document; calls are checked against the public parameters."""
    public = all_tools()[name]
    document = {
        "name": name,
        "description": DESCRIPTIONS[name],
        "parameters": {
            "type": "dict",
            "properties": {parameter.name: _schema(parameter) for parameter in public.parameters},
            "required": list(public.required),
        },
    }
    return ToolDoc(name, public.class_name, document, public.parameters)


def _schema(parameter: Parameter) -> dict[str, JSON]:
    schema: dict[str, JSON] = {"type": str(parameter.type)}
    if parameter.items is not None:
        schema["items"] = _schema(parameter.items)
    if parameter.properties:
        schema["properties"] = {inner.name: _schema(inner) for inner in parameter.properties}
    return schema


def compact_signature(tool: ToolDoc) -> str:
    """One line per tool: `mv(source, destination) Move or rename a file.`

    Optional arguments have a question mark; the description of an argument follows its name: `setHeadlights(mode: Type:
    string.) …`. It is made from `tool.document`, so that schema cues appear in it.
    """
    schema = tool.document["parameters"]
    required = set(schema["required"])
    arguments = []
    for name, value in schema["properties"].items():
        text = name if name in required else f"{name}?"
        description = value.get("description", "")
        arguments.append(f"{text}: {description}" if description else text)
    return f"{tool.document['name']}({', '.join(arguments)}) {tool.document['description']}"
