"""The executor: one dialogue's simulators, and structured calls on them. No text is ever evaluated.

Result texts are byte-identical to those of the official executor, which pastes calls into `eval`.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from envs.allowance import MAX_CALL_WORK, Cost
from envs.bfcl import simulators
from envs.bfcl.costs import cost_of
from envs.bfcl.guards import GUARDS, CallRefused
from envs.bfcl.tools import tool_names
from envs.errors import EnvironmentFault
from envs.task import Task
from envs.world import JSON, CallResult, ToolCall

BLOCKED_NAMES = frozenset({"kill", "exit", "quit", "remove", "unlink", "popen", "Popen", "run"})
"""Names for which the official executor has a special error."""

ERROR = "Error during execution: "
"""Prefix of the result of a call that raised."""


@dataclass(frozen=True, eq=False)
class Simulators:
    """The setting of a task: simulator classes, in the benchmark's order, and their start states by class.

    With `padded`, as in long_context tasks, simulators pad their state by up to 31,000 characters per result.
    """

    classes: tuple[str, ...]
    initial_config: Mapping[str, JSON]
    padded: bool = False

    def ready(self) -> Callable[[], SimulatorWorld]:
        """Builds the simulators once. Raises `EnvironmentFault` if one of them rejects its config."""
        instances = {}
        for name in self.classes:
            try:
                instances[name] = simulators.build(name, self.initial_config.get(name, {}), long_context=self.padded)
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                raise EnvironmentFault(f"{name} rejects its initial config: {error!r}") from error
        # A pickle is copied several times faster than simulators are built, and shares nothing with the package. It
        # contains task data only, never anything that a model wrote.
        image = pickle.dumps(instances, protocol=pickle.HIGHEST_PROTOCOL)
        return lambda: SimulatorWorld(pickle.loads(image))  # noqa: S301


def simulators_of(task: Task) -> Simulators:
    """The task's setting. Raises `EnvironmentFault` if its world is not made of simulators."""
    if not isinstance(task.setting, Simulators):
        raise EnvironmentFault(f"{task.id} does not play on the simulators")
    return task.setting


class SimulatorWorld:
    """The simulators of one dialogue, for one thread at a time; they share nothing with another world."""

    def __init__(self, instances: Mapping[str, object]) -> None:
        self._instances = dict(instances)
        self._class_of = _classes_by_tool(tuple(instances))
        self._defaults: dict[str, dict[str, JSON]] = {}

    def offers(self, name: str) -> bool:
        return name in self._class_of

    def cost(self, call: ToolCall) -> Cost:
        class_name = self._class_of.get(call.name)
        return cost_of(None if class_name is None else self._instances[class_name], call)

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        """Executes one call, or returns an error if it may be too expensive. Never raises."""
        if (cost or self.cost(call)).work > MAX_CALL_WORK:
            return CallResult(f"{ERROR}the call would read or write too much", is_error=True)
        try:
            return rendered(self._dispatch(call))
        except Exception as error:  # noqa: BLE001 - the error is the call's result
            return CallResult(ERROR + str(error), is_error=True)

    def state(self) -> dict[str, Any]:
        """A view of the comparable state: "Class.attribute" → value."""
        return simulators.public_state(self._instances)

    def _dispatch(self, call: ToolCall) -> Any:
        class_name = self._class_of.get(call.name)
        if class_name is None:
            raise unknown_tool(call.name)
        arguments = {key: argument_of(value) for key, value in call.arguments.items()}
        for key, value in simulators.mutable_defaults(class_name, call.name).items():
            # Python shares the default between all dialogues of the process; here each has its own.
            if key not in arguments:
                arguments[key] = self._defaults.setdefault(call.name, {}).setdefault(key, copy.deepcopy(value))
        method = getattr(self._instances[class_name], call.name)
        guard = GUARDS.get(call.name)
        return method(**arguments) if guard is None else guard(method, arguments)


@cache
def _classes_by_tool(classes: tuple[str, ...]) -> Mapping[str, str]:
    return {name: class_name for class_name in classes for name in tool_names(class_name)}


def unknown_tool(name: str) -> CallRefused:
    """The official executor's error for a tool that does not exist."""
    stem = name.split("(")[0]
    last = stem.split(".")[1] if "." in stem else stem
    if last in BLOCKED_NAMES:
        return CallRefused(f"Function call {last} is not allowed.")
    root = stem.split(".")[0]
    return CallRefused(f"name '{root}' is not defined" if root.isidentifier() else "invalid syntax (<string>, line 1)")


def argument_of(value: JSON) -> JSON:
    """A copy of an argument, as after the official round trip through source text.

    NaN and infinities have no literal: there they are undefined names.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise CallRefused(f"name '{'nan' if math.isnan(value) else 'inf'}' is not defined")
    if isinstance(value, dict):
        return {key: argument_of(item) for key, item in value.items()}
    if isinstance(value, list):
        return [argument_of(item) for item in value]
    if isinstance(value, tuple):
        return tuple(argument_of(item) for item in value)
    return value


def rendered(value: Any) -> CallResult:
    """The official rendering: text unchanged, dicts as JSON if possible, all else by `str`."""
    if isinstance(value, str):
        return CallResult(value, is_error=False)
    try:
        text = json.dumps(value) if isinstance(value, dict) else str(value)
    except (TypeError, ValueError, RecursionError):
        text = str(value)
    return CallResult(text, is_error=_reports_error(value))


def _reports_error(value: Any) -> bool:
    """Whether a value reports a failure: by an "error" key, also in a list, or by a text."""
    if isinstance(value, dict):
        return "error" in value
    if isinstance(value, list) and value:
        return _reports_error(value[0]) or (isinstance(value[0], str) and value[0].startswith("Error:"))
    return False
