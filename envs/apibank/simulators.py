"""The simulators of an API-Bank folder, seen from here: a process that is asked, and ended where it does not answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from envs.apibank import worker
from envs.apibank.program import read_program
from envs.bounded import BoundedProcess, program_of
from envs.confinement import can_confine
from envs.errors import EnvironmentFault
from envs.task import JSON, ToolCall
from envs.trusting import require_trust

MAX_CHARACTERS = 4_000
"""Characters of a call that are handed on, as JSON; the longest of a ground truth has 500. Beyond, it is an error."""
MAX_DEPTH = 8
"""Depth of lists and objects in arguments that are handed on; ground truths have 2."""


@dataclass(frozen=True, slots=True)
class Judged:
    """The result of a call on the databases of the beginning, and whether its API's own rule takes it for correct."""

    correct: bool
    result: JSON
    error: str | None


@dataclass(frozen=True, slots=True)
class PlayedCalls:
    """The result of the last of several calls.

    `correct` has the places of the ground-truth calls that it is correct for; `changed` says if a database changed,
    `ended` that the process had to be ended.
    """

    result: JSON
    error: str | None
    correct: frozenset[int]
    changed: bool
    ended: bool = False


@dataclass(frozen=True, slots=True)
class Recorded:
    """A call with what the benchmark's data recorded as its result."""

    call: ToolCall
    result: JSON

    def truth(self) -> dict[str, JSON]:
        return {"name": self.call.name, "result": self.result}


class _Reply(BaseModel):
    """What the process answers to a call."""

    correct: bool | list[int]
    result: Any
    error: str | None
    changed: bool = False


class _Described(BaseModel):
    """What it says of an API."""

    description: str
    input_parameters: dict[str, dict[str, str]]
    output_parameters: Any
    optional: list[str]
    runs: bool


class _Folder(BaseModel):
    """The folder's APIs by name."""

    apis: dict[str, _Described]


class ApiSimulators:
    """The process for one folder. Safe to use from several threads; requests are answered one after the other.

    `recorded` has results for APIs that cannot be executed here, by `key_of` a call. A call that ends the process or
    takes longer than `worker.SECONDS` of a processor, is an error; the next one gets a new process.
    Raises `UserError` for files that the user does not trust: others than the published ones, and all of them on a
    machine whose kernel cannot confine a process.
    """

    def __init__(self, folder: Path, recorded: Mapping[str, JSON] | None = None) -> None:
        if not can_confine():
            require_trust("Python files of API-Bank, which the kernel of this machine cannot confine", str(folder))
        self.folder = folder
        self.recorded = dict(recorded or {})
        self.process = BoundedProcess(
            lambda: program_of(worker.__name__),
            seconds=3.0 * worker.SECONDS,
            first=read_program(folder),
        )

    def describe(self) -> dict[str, dict[str, Any]]:
        """Every API by name: its documents, which arguments are `optional`, and whether it `runs` here.

        Raises `EnvironmentFault` where the folder's modules cannot be loaded.
        """
        try:
            reply = _Folder.model_validate(self.process.ask({"op": "describe"}))
        except ValidationError:
            raise EnvironmentFault(f"API-Bank: the simulators in {self.folder} cannot be loaded") from None
        return {name: each.model_dump() for name, each in reply.apis.items()}

    def judge(self, call: ToolCall, truth: JSON) -> Judged:
        """Whether a call is correct beside the recorded result of the ground truth. Never raises for what is called."""
        sent = self._sent(call)
        reply = None if sent is None else self._ask({"op": "judge", **sent, "truth": truth})
        if reply is None:
            return Judged(False, None, _REFUSED)
        return Judged(bool(reply.correct), reply.result, reply.error)

    def play(self, before: Sequence[ToolCall], call: ToolCall, truths: Sequence[Recorded]) -> PlayedCalls:
        """Executes a call behind others, all from the databases of the beginning."""
        sent = [self._sent(each) for each in (*before, call)]
        calls = [each for each in sent if each is not None]
        reply = None
        if sent[-1] is not None:
            reply = self._ask({"op": "play", "calls": calls, "truths": [each.truth() for each in truths]})
        if reply is None:
            return PlayedCalls(None, _REFUSED, frozenset(), changed=False, ended=sent[-1] is not None)
        correct = reply.correct if isinstance(reply.correct, list) else []
        return PlayedCalls(reply.result, reply.error, frozenset(correct), reply.changed)

    def close(self) -> None:
        """Ends the process. The next request starts one anew."""
        self.process.close()

    def _ask(self, request: Mapping[str, JSON]) -> _Reply | None:
        """The answer; None if the process ended instead, or answered something else."""
        try:
            return _Reply.model_validate(self.process.ask(request))
        except ValidationError:
            return None

    def _sent(self, call: ToolCall) -> dict[str, JSON] | None:
        """A call as it is handed on; None where it is larger than any should be."""
        if _too_large(call):
            return None
        arguments = {name: _given(value) for name, value in call.arguments.items() if value is not None}
        return {"name": call.name, "arguments": arguments, "recorded": self.recorded.get(key_of(call))}


_REFUSED = "The call is too large, or took too long."


def key_of(call: ToolCall) -> str:
    """What a call is recorded by: its name and its arguments as texts, without the space around them."""
    arguments = {name: str(_given(value)).strip() for name, value in call.arguments.items() if value is not None}
    return json.dumps([call.name, arguments], sort_keys=True)


def _given(value: JSON) -> JSON:
    """A scalar as the text that the benchmark's own decoder would hand on; lists and objects as they are."""
    return value if isinstance(value, str | list | dict) else str(value)


def _too_large(call: ToolCall) -> bool:
    left = MAX_CHARACTERS - len(call.name)
    waiting: list[tuple[JSON, int]] = [(dict(call.arguments), 0)] if left > 0 else []
    while waiting and left > 0:
        value, depth = waiting.pop()
        left -= 1
        if depth > MAX_DEPTH:
            return True
        if isinstance(value, str):
            left -= len(value)
        elif isinstance(value, dict):
            left -= sum(len(str(key)) for key in list(value)[:MAX_CHARACTERS])
            waiting += [(each, depth + 1) for each in list(value.values())[:MAX_CHARACTERS]]
        elif isinstance(value, list | tuple):
            waiting += [(each, depth + 1) for each in value[:MAX_CHARACTERS]]
        elif isinstance(value, int) and value.bit_length() > MAX_CHARACTERS:
            return True
    return left <= 0
