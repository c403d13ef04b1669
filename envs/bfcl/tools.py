"""BFCL's 128 public tools: their documents, typed, per simulator class. This is the allow-list of the executor."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from envs.bfcl.package import data_folder
from envs.documents import read_tool
from envs.errors import EnvironmentFault
from envs.task import ToolDoc

DOCUMENT_FILES: Mapping[str, str] = MappingProxyType(
    {
        "GorillaFileSystem": "gorilla_file_system.json",
        "MathAPI": "math_api.json",
        "MessageAPI": "message_api.json",
        "TwitterAPI": "posting_api.json",
        "TicketAPI": "ticket_api.json",
        "TradingBot": "trading_bot.json",
        "TravelAPI": "travel_booking.json",
        "VehicleControlAPI": "vehicle_control.json",
    }
)
"""Simulator class → file of its tool documents; its module has the same name."""

PYTHON_HINT = " Note that the provided function is in Python 3 syntax."
"""The sentence that the official loader appends to the description of every tool shown from the start."""


@cache
def with_python_hint(tool: ToolDoc) -> ToolDoc:
    """The document as the official loader shows it from the start of a dialogue (held-out tools come without)."""
    document = {**tool.document, "description": tool.document["description"] + PYTHON_HINT}
    return ToolDoc(tool.name, tool.class_name, document, tool.parameters)


@cache
def tools_of(class_name: str) -> tuple[ToolDoc, ...]:
    """The published documents of one simulator class, in published order."""
    path = data_folder() / "multi_turn_func_doc" / DOCUMENT_FILES[class_name]
    tools = [read_tool(json.loads(line), class_name) for line in path.read_text(encoding="utf-8").splitlines()]
    if len({tool.name for tool in tools}) != len(tools):
        raise EnvironmentFault(f"{path.name} documents a tool twice")
    return tuple(tools)


@cache
def tool_names(class_name: str) -> frozenset[str]:
    """The allow-list of one simulator class: exactly its documented tools."""
    return frozenset(tool.name for tool in tools_of(class_name))


@cache
def all_tools() -> Mapping[str, ToolDoc]:
    """Every documented tool by name; names are unique over the eight classes."""
    return MappingProxyType({tool.name: tool for class_name in DOCUMENT_FILES for tool in tools_of(class_name)})
