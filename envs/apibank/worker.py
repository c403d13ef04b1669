"""Runs API-Bank's simulators in a child process.

The first line of input has the texts of the folder's files. They are a stranger's code: before any of it is executed,
the kernel confines the process (`envs/confinement.py`), which can then only compute and answer. After the modules are
loaded, Python too refuses files, processes, sockets and the execution of text; hostile code can undo that. Names and
arguments of calls come as JSON and are never put into code. A request that takes too long ends the process.
"""

import copy
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import random
import sys
import types
from collections.abc import Mapping
from typing import Any

from envs.confinement import confine
from envs.line_server import limit, serve, take_stdout

SECONDS = 5
"""Processor time per request."""
MAX_REPLY = 2_000_000
"""Characters of a reply."""
_SHUT = ("open", "os.", "socket.", "subprocess.", "shutil.", "ctypes.", "exec", "compile", "pty.", "tempfile.", "mmap.")
_CANNOT_RUN = "This API cannot be executed here."
_load = importlib.import_module
_IMPORTABLE = (
    *("_strptime", "calendar", "collections", "csv", "datetime", "decimal", "difflib", "hashlib", "importlib.util"),
    *("itertools", "logging", "math", "re", "socket", "statistics", "string", "subprocess", "textwrap", "threading"),
    *("time", "typing", "urllib.parse", "uuid", "encodings.ascii", "encodings.idna", "encodings.latin_1"),
)
"""Modules of the standard library that APIs may import, in addition to this file's imports."""


class Missing(types.ModuleType):
    """A package outside the standard library. Its content fails when it is used."""

    __path__ = []  # noqa: RUF012 - as importlib declares it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing


class Nothing:
    """A class or function of a missing package."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise RuntimeError(_CANNOT_RUN)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the folder's modules from their texts, and a `Missing` module for all unknown names."""

    def __init__(self, sources: Mapping[str, str]) -> None:
        self._sources = {f"apis.{name}": text for name, text in sources.items()}
        self._sources["apis"] = "from apis.api import API"  # the published one lists its folder and imports everything

    def find_spec(self, fullname: str, *_: Any) -> importlib.machinery.ModuleSpec:
        spec = importlib.machinery.ModuleSpec(fullname, self, origin=fullname, is_package=self.is_package(fullname))
        spec.has_location = fullname in self._sources
        return spec

    def is_package(self, fullname: str) -> bool:
        return fullname == "apis" or fullname not in self._sources

    def get_source(self, fullname: str) -> str:
        return self._sources[fullname]

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return None if spec.name in self._sources else Missing(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__name__ in self._sources:
            super().exec_module(module)


class Apis:
    """The APIs of a folder, from the texts of its modules and databases by name."""

    def __init__(self, sources: Mapping[str, str], databases: Mapping[str, str]) -> None:
        self.classes: dict[str, type] = {}
        self.missing: set[str] = set()
        """APIs that lack a package or their database."""
        self.databases = {name: json.loads(text) for name, text in databases.items()}
        base = _load("apis.api").API
        for source in sources:
            if source == "api":
                continue
            module = _load(f"apis.{source}")
            lacks = any(isinstance(each, Missing) or each is Nothing for each in vars(module).values())
            for name, each in vars(module).items():
                if isinstance(each, type) and issubclass(each, base) and each is not base:
                    self.classes[name] = each
                    database = getattr(each, "database_name", None)
                    if lacks or (database is not None and database not in self.databases):
                        self.missing.add(name)

    def describe(self) -> dict[str, Any]:
        return {
            name: {
                "description": each.description,  # type: ignore[attr-defined]
                "input_parameters": each.input_parameters,  # type: ignore[attr-defined]
                "optional": _optional(each),
                "runs": name not in self.missing,
            }
            for name, each in self.classes.items()
        }

    def correct(self, tool: Any, name: str, result: Any, truth: Any) -> bool:
        """The API's own rule; if it raises, the result is wrong."""
        if tool is None:  # rules read nothing of what an instance is made with
            tool = object.__new__(self.classes[name])
        try:
            return bool(tool.check_api_call_correctness(copy.deepcopy(result), copy.deepcopy(truth)))
        except Exception:  # noqa: BLE001
            return False


class ApiSession:
    """The APIs on their own copies of the databases."""

    def __init__(self, apis: Apis) -> None:
        self._apis = apis
        self._databases: dict[str, Any] = {}
        self._tools: dict[str, Any] = {}
        self._good: dict[str, int] = {}

    def call(self, name: str, arguments: Mapping[str, Any], recorded: Any) -> Any:
        """The result of a call. Raises any error of the API, and `ValueError` for wrong arguments."""
        if name not in self._apis.classes:
            raise ValueError("invalid tool name.")
        given = _processed(self._apis.classes[name].input_parameters, arguments)  # type: ignore[attr-defined]
        if name in self._apis.missing:
            failed = {"api_name": name, "input": given, "output": None, "exception": _CANNOT_RUN}
            return failed if recorded is None else recorded
        # Random ids do not depend on the calls of other APIs, or on earlier mistakes.
        random.seed(f"{name} {self._good.get(name, 0)}")
        result = self.tool(name).call(**given)
        if isinstance(result, dict) and result.get("exception") is None:
            self._good[name] = self._good.get(name, 0) + 1
        return result

    def tool(self, name: str) -> Any:
        """The instance of this API; None if it cannot be made."""
        if name in self._apis.missing:
            return None
        if name not in self._tools:
            each: Any = self._apis.classes[name]
            made_with = []
            database = getattr(each, "database_name", None)
            if database is not None:
                own = self._databases.get(database) or copy.deepcopy(self._apis.databases[database])
                made_with.append(self._databases.setdefault(database, own))
            if name != "CheckToken" and "token" in each.input_parameters:
                made_with.append(self.tool("CheckToken"))
            self._tools[name] = each(*made_with)
        return self._tools[name]

    def changed(self) -> str:
        """The changed databases, as text. Their keys are texts and numbers, which cannot be sorted together."""
        held = {name: value for name, value in self._databases.items() if value != self._apis.databases[name]}
        return json.dumps(_with_sorted_keys(held), default=str)


def _with_sorted_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_sorted_keys(value[key]) for key in sorted(value, key=repr)}
    return [_with_sorted_keys(each) for each in value] if isinstance(value, list) else value


def _optional(each: type) -> list[str]:
    """The documented arguments with a default."""
    taken = inspect.signature(each.call).parameters  # type: ignore[attr-defined]
    named = {name for name, value in taken.items() if value.default is inspect.Parameter.empty}
    return [name for name in each.input_parameters if name not in named]  # type: ignore[attr-defined]


def _processed(known: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in the documented types, as the benchmark's tool manager converts them."""
    given = {}
    for name, value in arguments.items():
        if name not in known:
            raise ValueError(f"invalid parameter name. parameter: {name}")
        kind = known[name]["type"]
        if kind in ("int", "float"):
            digits = value.replace(".", "", 1) if isinstance(value, str) and kind == "float" else value
            if isinstance(digits, str) and not digits.isdigit():
                raise ValueError(f"invalid parameter type. parameter: {value}")
            given[name] = int(value) if kind == "int" else float(value)
        elif kind == "bool":
            given[name] = value == "True"
        elif kind in ("str", "list", "list(str)"):
            given[name] = value
        else:
            raise ValueError("invalid parameter type.")
    return given


def play(apis: Apis, request: Mapping[str, Any]) -> dict[str, Any]:
    """Several calls. Of the last: its result, whether it changed a database, and which of `truths` it matches."""
    session = ApiSession(apis)
    before, reply = "", {}
    for last, call in enumerate(request["calls"], 1 - len(request["calls"])):
        name = call["name"]
        if last == 0:
            before = session.changed()
        try:
            reply = {"result": session.call(name, call["arguments"], call["recorded"]), "error": None}
        except Exception as error:  # noqa: BLE001 - it is the call's result
            reply = {"result": None, "error": f"{error}"[:500]}
    reply["changed"] = session.changed() != before
    reply["correct"] = [
        place
        for place, truth in enumerate(request["truths"])
        if reply["error"] is None
        and truth["name"] == name
        and apis.correct(session.tool(name), name, reply["result"], truth["result"])
    ]
    return reply


def _refuse(event: str, _: Any) -> None:
    if event.startswith(_SHUT):
        raise PermissionError(f"{event} is shut off")


def main() -> None:
    replies = take_stdout()
    for name in _IMPORTABLE:
        _load(name)
    limit()
    confine()
    folder = json.loads(sys.stdin.readline())
    sys.meta_path.append(Finder(folder["sources"]))
    apis = Apis(**folder)
    sys.addaudithook(_refuse)

    def answer(request: dict[str, Any]) -> str:
        reply = {"apis": apis.describe()} if request["op"] == "describe" else play(apis, request)
        text = json.dumps(reply, default=str)
        return text if len(text) <= MAX_REPLY else json.dumps({"correct": [], "result": None, "error": "too long"})

    serve(answer, replies, seconds=SECONDS)
