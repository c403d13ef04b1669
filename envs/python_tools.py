"""Tools from the methods of a Python class, and a task source on them: a custom benchmark in a few lines.

class Lamps:
    def __init__(self) -> None:
        self.on = {"kitchen": False, "hall": False}

    def set_lamp(self, room: str, on: bool) -> str:
        "Turn the lamp of a room on or off."
        self.on[room] = on
        return "done"

SOURCE = tools_source("lamps", Lamps, train=[[("Light the kitchen.", call("set_lamp", room="kitchen", on=True))]])
"""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from envs.allowance import CALL, MAX_CALL_WORK, Cost, size
from envs.errors import UserError
from envs.sources import TaskSet
from envs.task import JSON, ParameterType, Task, ToolCall, ToolDoc, Turn
from envs.tool_documents import check_call, read_tool
from envs.world import CallResult

_TYPES = {
    str: ParameterType.STRING,
    int: ParameterType.INTEGER,
    float: ParameterType.FLOAT,
    bool: ParameterType.BOOLEAN,
    list: ParameterType.ARRAY,
    dict: ParameterType.DICT,
}
WITH_CALLS, WITHOUT_CALLS = "calls", "no_calls"
"""The categories of tasks: something should be called, or nothing."""
Request = tuple[str | ToolCall, ...]
"""A user's text, then the calls that it needs; none if nothing should be called."""


def call(name: str, **arguments: JSON) -> ToolCall:
    """A call of the ground truth."""
    return ToolCall(name, arguments)


def tools_source(
    name: str,
    tools: Callable[[], object],
    *,
    train: Sequence[Sequence[Request]],
    dev: Sequence[Sequence[Request]] = (),
    test: Sequence[Sequence[Request]] = (),
    context: int | None = None,
) -> TaskSet:
    """A source of tasks, each a sequence of requests, on the public methods of a class.

    A turn passes if the instance's attributes, and the results, are those after the turn's calls.

    Args:
        tools: Makes the instance of a dialogue. Its methods have a docstring, and annotations `str`, `int`, `float`,
            `bool`, `list`, `dict`, `Literal[...]` of texts, or `Annotated` with a description. An exception in a method
            is an error that the model reads.
        context: Tokens that a dialogue needs; None for the model's own.

    Raises:
        UserError: A method or an annotation does not fit, or a call of the ground truth breaks its schema, fails, or
            differs between two instances.
    """
    setting = _PythonSetting(tools, tools_of(tools()))
    documents = tuple(setting.documents.values())
    parts = {
        part: [_task(f"{name}_{part}_{number}", requests, documents, setting) for number, requests in enumerate(tasks)]
        for part, tasks in (("train", train), ("dev", dev), ("test", test))
    }
    for task in (task for tasks in parts.values() for task in tasks):
        worlds = [setting.ready()() for _ in range(2)]
        for wanted in (wanted for turn in task.turns for wanted in turn.ground_truth):
            results = [world.execute(wanted) for world in worlds]
            if results[0].is_error:
                raise UserError(f"{task.id}: the ground truth {wanted!s:.200} fails ({results[0].text:.200}).")
            if results[0] != results[1] or worlds[0].state() != worlds[1].state():
                raise UserError(
                    f"{task.id}: {wanted!s:.200} has another result or state in a second instance; give each its own "
                    "state, of values that can be compared."
                )
    return TaskSet(name, inspect.getdoc(tools) or name, parts, context=context)


def _task(task_id: str, requests: Sequence[Request], documents: tuple[ToolDoc, ...], setting: "_PythonSetting") -> Task:
    turns = []
    for text, *calls in requests:
        if not isinstance(text, str) or not all(isinstance(each, ToolCall) for each in calls):
            raise UserError(f"{task_id}: a request is a text and calls, not {(text, *calls)!r:.200}.")
        turns.append(Turn(text, tuple(calls)))  # type: ignore[arg-type] # checked above
    category = WITH_CALLS if any(turn.ground_truth for turn in turns) else WITHOUT_CALLS
    return Task(task_id, category, task_id, tuple(turns), documents, (documents[0].class_name,), setting)


@dataclass(frozen=True)
class _PythonSetting:
    tools: Callable[[], object]
    documents: Mapping[str, ToolDoc]

    def ready(self) -> "Callable[[], PythonWorld]":
        return lambda: PythonWorld(self.tools(), self.documents)


class PythonWorld:
    """A world whose tools are the public methods of an instance, and whose state is its public attributes."""

    def __init__(self, instance: object, tools: Mapping[str, ToolDoc]) -> None:
        self._instance = instance
        self._name = type(instance).__name__
        self._tools = tools

    def offers(self, name: str) -> bool:
        return name in self._tools

    def cost(self, wanted: ToolCall) -> Cost:
        """The cost of reading the call and the state: a method's own work is not counted."""
        units = CALL + size(wanted.name) + size(wanted.arguments)
        return Cost(units + size(vars(self._instance)), units)

    def execute(self, wanted: ToolCall, cost: Cost | None = None) -> CallResult:
        """Calls the method, if the call keeps to its schema. An exception is an error result."""
        if (cost or self.cost(wanted)).work > MAX_CALL_WORK:
            return CallResult("The call would read too much.", is_error=True)
        if wanted.name not in self._tools:
            return CallResult(f"There is no tool {wanted.name!r:.80}.", is_error=True)
        if violations := check_call(wanted, self._tools[wanted.name]):
            text = "; ".join(f"{each.argument}: {each.kind}" for each in violations[:5])
            return CallResult(f"The arguments do not fit ({text}).", is_error=True)
        try:
            result = getattr(self._instance, wanted.name)(**deepcopy(dict(wanted.arguments)))
            return CallResult(result if isinstance(result, str) else json.dumps(result), is_error=False)
        except Exception as error:  # noqa: BLE001 - any is the tool's answer
            return CallResult(f"{type(error).__name__}: {error}", is_error=True)

    def state(self) -> Mapping[str, Any]:
        """A copy of the public attributes, by class and name."""
        public = {name: value for name, value in vars(self._instance).items() if not name.startswith("_")}
        return {f"{self._name}.{name}": deepcopy(value) for name, value in public.items()}


def tools_of(instance: object) -> dict[str, ToolDoc]:
    """Name → tool of each public method. Raises `UserError` if there is none, or one does not fit."""
    class_name, methods = type(instance).__name__, inspect.getmembers(type(instance), inspect.isfunction)
    tools = {name: _document(class_name, name, each) for name, each in methods if not name.startswith("_")}
    if not tools:
        raise UserError(f"{class_name}: it has no public method, and so no tool.")
    return tools


def _document(class_name: str, name: str, method: Callable[..., Any]) -> ToolDoc:
    description = inspect.getdoc(method)
    if not description:
        raise UserError(f"{class_name}.{name}: it needs a docstring, by which a model learns what it does.")
    hints = get_type_hints(method, include_extras=True)
    parameters = [each for each in inspect.signature(method).parameters.values() if each.name != "self"]
    properties = {each.name: _schema(f"{class_name}.{name}", each.name, hints.get(each.name)) for each in parameters}
    required = [each.name for each in parameters if each.default is inspect.Parameter.empty]
    schema = {"type": "dict", "properties": properties, "required": required}
    return read_tool({"name": name, "description": description, "parameters": schema}, class_name)


def _schema(method: str, name: str, hint: Any) -> dict[str, JSON]:
    description = ""
    if get_origin(hint) is Annotated:
        hint, description = get_args(hint)[:2]
    if get_origin(hint) is Literal and all(isinstance(each, str) for each in get_args(hint)):
        hint, description = str, f"{description} [Enum]: {json.dumps(get_args(hint), ensure_ascii=False)}".strip()
    kind = _TYPES.get(get_origin(hint) or hint)
    if kind is None:
        known = ", ".join(each.__name__ for each in _TYPES)
        raise UserError(f"{method}: annotate {name} as one of {known}, a Literal of texts, or Annotated.")
    return {"type": kind.value, **({"description": description} if description else {})}
