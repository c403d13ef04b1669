"""The installed `bfcl-eval`, and the typed documents of BFCL's 128 public tools: the executor's allow-list.

Only data files and the eight simulator modules are used; exams also use constants with prompts, the classes of
memories, the checker of final answers and, in a child process, that of single-turn calls. Other modules of the package
have side effects when imported (result folders, lock files, seconds of imports), and its evaluators execute model text.
"""

import importlib.metadata
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from envs.errors import EnvironmentFault, UserError
from envs.task import ToolDoc
from envs.tool_documents import read_tool

VERSION = "2026.3.23"
"""The release that the tests compare with."""

DOCUMENT_FILES: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system.json",
    "MathAPI": "math_api.json",
    "MessageAPI": "message_api.json",
    "TwitterAPI": "posting_api.json",
    "TicketAPI": "ticket_api.json",
    "TradingBot": "trading_bot.json",
    "TravelAPI": "travel_booking.json",
    "VehicleControlAPI": "vehicle_control.json",
}
"""Simulator class → file of its tool documents; its module has the same name."""

PYTHON_HINT = " Note that the provided function is in Python 3 syntax."
"""The official loader appends it to the description of every tool that is shown from the start."""


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows of one of the benchmark's data files."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def read_entries(name: str) -> list[tuple[dict[str, Any], Any]]:
    """The rows of the data file `BFCL_v4_NAME.json`, each with its possible answer; None if it has none."""
    path = data_folder() / f"BFCL_v4_{name}.json"
    answers = data_folder() / "possible_answer" / path.name
    known = {row["id"]: row["ground_truth"] for row in read_rows(answers)} if answers.exists() else {}
    return [(row, known.get(row["id"])) for row in read_rows(path)]


@cache
def data_folder() -> Path:
    """The folder of BFCL's JSON data. Raises `UserError` if the package is missing or has another version."""
    advice = f"run `make setup`, or `pip install --no-deps bfcl-eval=={VERSION}`"
    try:
        package = importlib.metadata.distribution("bfcl-eval")
    except importlib.metadata.PackageNotFoundError:
        raise UserError(f"bfcl-eval: the package is not installed, version {VERSION} is needed; {advice}.") from None
    if package.version != VERSION:
        raise UserError(f"bfcl-eval: version {package.version} is installed, version {VERSION} is needed; {advice}.")
    return Path(str(package.locate_file("bfcl_eval/data")))


@cache
def with_python_hint(tool: ToolDoc) -> ToolDoc:
    """The tool as the official loader shows it from the start of a dialogue; held-out tools have no hint."""
    document = {**tool.document, "description": tool.document["description"] + PYTHON_HINT}
    return ToolDoc(tool.name, tool.class_name, document, tool.parameters)


@cache
def tools_of(class_name: str) -> tuple[ToolDoc, ...]:
    """The published documents of one simulator class, in published order."""
    path = data_folder() / "multi_turn_func_doc" / DOCUMENT_FILES[class_name]
    tools = [read_tool(row, class_name) for row in read_rows(path)]
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
