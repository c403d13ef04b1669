"""The simulators of an API-Bank folder: a child process that is ended if it does not answer."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from envs.allowance import size
from envs.apibank import worker
from envs.bounded import BoundedProcess, program_of
from envs.confinement import can_confine
from envs.errors import EnvironmentFault, UserError
from envs.received import read_bytes
from envs.task import JSON, ToolCall
from envs.text import depth
from envs.trusting import require_trust

MAX_SIZE = 10_000
"""Units (`size`) of a call, some 8,000 characters; the longest ground truth has 500. A larger call is an error."""
MAX_DEPTH = 8
"""Depth of lists and objects in arguments; ground truths have 2."""
_MAX_BYTES = 50_000_000
"""Bytes of a folder's files; the published ones have 1,000,000."""
_REFUSED = "The call is too large, or took too long."


@dataclass(frozen=True, slots=True)
class Recorded:
    """A call with its recorded result in the benchmark's data."""

    call: ToolCall
    result: JSON


class Reply(BaseModel, frozen=True):
    """The result of a call, the last of several.

    `correct` has the indices of the recorded calls that it is correct for, by the rule of its API; `changed` says
    whether a database changed, `ended` whether the process had to be ended.
    """

    correct: list[int]
    result: Any
    error: str | None
    changed: bool = False
    ended: bool = False


class _Described(BaseModel):
    description: str
    input_parameters: dict[str, dict[str, str]]
    optional: list[str]
    runs: bool


class _Folder(BaseModel):
    """The folder's APIs by name."""

    apis: dict[str, _Described]


class ApiSimulators:
    """The child process for one folder. Thread-safe; requests are answered one after the other.

    A call that ends the process, or takes longer than `worker.SECONDS` of a processor, is an error; the next one gets a
    new process. Raises `UserError` for files that the user does not trust: all but the published ones, and all files if
    the kernel cannot confine a process. `recorded` are results for APIs that cannot be executed here, by `key_of` a
    call.
    """

    def __init__(self, folder: Path, recorded: Mapping[str, JSON] | None = None) -> None:
        if not can_confine():
            require_trust("Python files of API-Bank, which the kernel of this machine cannot confine", str(folder))
        self.folder = folder
        self.recorded = dict(recorded or {})
        self.process = BoundedProcess(
            lambda: program_of(worker.__name__), seconds=3.0 * worker.SECONDS, first=read_program(folder)
        )

    def describe(self) -> dict[str, dict[str, Any]]:
        """Every API by name: its documents, its `optional` arguments, and whether it `runs` here.

        Raises `EnvironmentFault` if the folder's modules cannot be loaded.
        """
        try:
            reply = _Folder.model_validate(self.process.ask({"op": "describe"}))
        except ValidationError:
            raise EnvironmentFault(f"API-Bank: the simulators in {self.folder} cannot be loaded") from None
        return {name: described.model_dump() for name, described in reply.apis.items()}

    def judge(self, call: ToolCall, truth: JSON) -> Reply:
        """Executes a call on the initial databases and compares it with the recorded result. Never raises."""
        return self.play((), call, (Recorded(call, truth),))

    def play(self, before: Sequence[ToolCall], call: ToolCall, truths: Sequence[Recorded]) -> Reply:
        """Executes a call after others, all from the initial databases."""
        *earlier, sent = [self._sent(each) for each in (*before, call)]
        if sent is None:
            return Reply(correct=[], result=None, error=_REFUSED)
        calls = [each for each in (*earlier, sent) if each is not None]
        known = [{"name": each.call.name, "result": each.result} for each in truths]
        try:
            return Reply.model_validate(self.process.ask({"op": "play", "calls": calls, "truths": known}))
        except ValidationError:  # the process ended instead, or answered something else
            return Reply(correct=[], result=None, error=_REFUSED, ended=True)

    def close(self) -> None:
        """Ends the process. The next request starts a new one."""
        self.process.close()

    def _sent(self, call: ToolCall) -> dict[str, JSON] | None:
        """A call in the form of a request; None if it is too large."""
        if size([call.name, dict(call.arguments)]) > MAX_SIZE or depth(dict(call.arguments)) > MAX_DEPTH:
            return None
        arguments = {name: _given(value) for name, value in call.arguments.items() if value is not None}
        return {"name": call.name, "arguments": arguments, "recorded": self.recorded.get(key_of(call))}


def key_of(call: ToolCall) -> str:
    """The key of a recorded call: its name and its arguments as stripped texts."""
    arguments = {name: str(_given(value)).strip() for name, value in call.arguments.items() if value is not None}
    return json.dumps([call.name, arguments], sort_keys=True)


def _given(value: JSON) -> JSON:
    """A scalar as text, as the benchmark's own decoder returns it; lists and objects unchanged."""
    return value if isinstance(value, str | list | dict) else str(value)


def read_program(folder: Path) -> dict[str, dict[str, str]]:
    """The texts of the folder's `sources` and `databases`, by file name without suffix.

    The published files are known by their SHA-256. Raises `UserError` for other files that the user does not trust, and
    for files that are no text.
    """
    files = {"sources": "apis/*.py", "databases": "init_database/*.json"}
    content: dict[str, dict[Path, bytes]] = {}
    for kind, pattern in files.items():
        paths = [path for path in sorted(folder.glob(pattern)) if path.stem != "__init__"]
        content[kind] = {path: read_bytes(path, "api-bank", _MAX_BYTES) for path in paths}
    if sum(len(data) for each in content.values() for data in each.values()) > _MAX_BYTES:
        raise UserError(f"api-bank: the files in {folder} have more than {_MAX_BYTES:,} bytes; it is no API-Bank.")
    published = set(Path(__file__).with_name("published.sha256").read_text("utf-8").splitlines())  # as of `sha256sum`
    changed = [
        str(path.relative_to(folder))
        for each in content.values()
        for path, data in each.items()
        if f"{hashlib.sha256(data).hexdigest()}  {path.relative_to(folder).as_posix()}" not in published
    ]
    if changed:
        require_trust(f"files that are not the published ones, such as {changed[0]}", str(folder))
    try:
        return {
            kind: {path.stem: data.decode("utf-8-sig") for path, data in each.items()} for kind, each in content.items()
        }
    except UnicodeDecodeError as error:
        raise UserError(f"api-bank: a file in {folder} is no UTF-8 text ({error}).") from None
