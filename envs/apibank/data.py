"""The dialogues of an API-Bank folder as typed values."""

import ast
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.apibank.simulators import Recorded, key_of
from envs.errors import UserError
from envs.received import parse_json, read_text
from envs.task import JSON, ToolCall, ToolDoc
from envs.tool_documents import read_tool

LEVELS: Mapping[str, str] = {"level-1": "level-1-given-desc", "level-2": "level-2-toolsearcher"}
"""Category → folder of its dialogues. Level 1 shows the APIs of a dialogue, level 2 only the search for APIs."""
SEARCH = "ToolSearcher"
VARIABLE = "API_BANK_DATA"
"""Environment variable with the default folder."""

_TYPES = {"str": "string", "int": "integer", "float": "float", "bool": "boolean", "list": "array", "dict": "dict"}


@dataclass(frozen=True, slots=True)
class Text:
    """A text of the user or the assistant."""

    user: bool
    text: str


Row = Text | Recorded


@dataclass(frozen=True, slots=True)
class RecordedDialogue:
    """The dialogue of one file; `level` is a key of `LEVELS`."""

    id: str
    level: str
    rows: tuple[Row, ...]

    @property
    def calls(self) -> tuple[Recorded, ...]:
        return tuple(row for row in self.rows if isinstance(row, Recorded))

    @property
    def shown_names(self) -> list[str]:
        """The names of the APIs that a model is shown."""
        return [SEARCH] if self.level == "level-2" else list(dict.fromkeys(each.call.name for each in self.calls))


ID_PREFIX = "api_bank_"


def folder_of(named: str | Path | None = None) -> Path:
    """The folder of the benchmark. Raises `UserError` if none is named, or it is not one."""
    name = named or os.environ.get(VARIABLE)
    if not name:
        raise UserError(
            "api-bank: its folder is not known; clone the benchmark's repository and name its folder api-bank, with "
            f"--data FOLDER or in the environment variable {VARIABLE}."
        )
    folder = Path(name)
    needed = ("apis", "init_database", *(f"lv1-lv2-samples/{each}" for each in LEVELS.values()))
    missing = [each for each in needed if not (folder / each).is_dir()]
    if missing:
        raise UserError(f"api-bank: {folder} has no folder {missing[0]}; name the folder api-bank of its repository.")
    return folder


def read_dialogues(folder: Path) -> tuple[RecordedDialogue, ...]:
    """All dialogues by level and name, without empty files. Raises `UserError` for a file that is no dialogue."""
    dialogues = []
    for level, name in LEVELS.items():
        for path in sorted((folder / "lv1-lv2-samples" / name).glob("*.jsonl")):
            rows = []
            for number, line in enumerate(read_text(path, "api-bank").splitlines(), 1):
                try:
                    rows.append(_row(parse_json(line)))
                except (ValueError, KeyError, TypeError, AttributeError) as error:
                    raise UserError(
                        f"api-bank: line {number} of {path} is no part of a dialogue ({error!r})."
                    ) from None
            first = next((row for row in rows if isinstance(row, Recorded) or row.user), None)
            if isinstance(first, Recorded):
                raise UserError(f"api-bank: {path} calls an API before the first text of the user.")
            if rows:
                dialogues.append(RecordedDialogue(ID_PREFIX + path.stem, level, tuple(rows)))
    return tuple(dialogues)


def recorded_results(dialogues: Sequence[RecordedDialogue]) -> dict[str, JSON]:
    """The first recorded result of every call, by `key_of`."""
    return {key_of(each.call): each.result for dialogue in reversed(dialogues) for each in reversed(dialogue.calls)}


def read_tools(described: Mapping[str, Mapping[str, Any]]) -> dict[str, ToolDoc]:
    """The APIs' tool documents by name, from `ApiSimulators.describe`."""
    return {
        name: read_tool(
            {
                "name": name,
                "description": each["description"],
                "parameters": {
                    "type": "dict",
                    "properties": {key: _schema(value) for key, value in each["input_parameters"].items()},
                    "required": [key for key in each["input_parameters"] if key not in each["optional"]],
                },
            },
            class_name="ApiBank",
        )
        for name, each in described.items()
    }


def typed(call: ToolCall, tool: ToolDoc | None) -> ToolCall:
    """A recorded call, whose arguments are all texts, with values of the documented types if possible."""
    if tool is None:
        return call
    types = {parameter.name: parameter.type.value for parameter in tool.parameters}
    return ToolCall(call.name, {name: _typed(value, types.get(name)) for name, value in call.arguments.items()})


def _typed(value: JSON, kind: str | None) -> JSON:
    if not isinstance(value, str) or kind not in ("integer", "float", "array", "boolean"):
        return value
    try:
        read = ast.literal_eval(value)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return value
    fits = {"integer": int, "float": int | float, "array": list, "boolean": bool}[kind]
    return read if isinstance(read, fits) and (kind == "boolean" or not isinstance(read, bool)) else value


def _schema(parameter: Mapping[str, str]) -> dict[str, JSON]:
    kind, _, inner = parameter["type"].partition("(")
    schema: dict[str, JSON] = {"type": _TYPES.get(kind, "string"), "description": parameter["description"]}
    if inner:
        schema["items"] = {"type": _TYPES.get(inner.rstrip(")"), "string")}
    return schema


def _row(row: Mapping[str, Any]) -> Row:
    role = row["role"]
    if role == "API":
        return Recorded(ToolCall(str(row["api_name"]), dict(row["param_dict"])), dict(row["result"]))
    if role not in ("User", "AI"):
        raise ValueError(f"role {role!r}")
    return Text(role == "User", str(row["text"]))
