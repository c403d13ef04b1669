"""A task source whose tools have conventions that no document states and that failure profiles reveal.

Each tool has an argument of its own, which wants a code of its own behind the value that the user gives. A call
without it returns "ok" and has the wrong effect; the diagnosis names the tool, the argument and the code. A set has
twelve tools, of which three more enter every `STAGE` training tasks. So guidelines must be found again and again, and
other sets need others.
"""

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envs.allowance import CALL, MAX_CALL_WORK, Cost, size
from envs.errors import UserError, check_known
from envs.sources import PARTS, SEEDS, Split, TaskSource
from envs.task import HiddenRule, Parameter, ParameterType, Task, ToolCall, ToolDoc, Turn
from envs.toolworld.words import owner
from envs.world import CallResult

_TABLE = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
_VERBS, _NOUNS, _ARGUMENTS, _NAMES = (_TABLE[key].split() for key in ("verbs", "nouns", "arguments", "names"))
_DIGITS = "123456789"

BASE = "base"
"""The only category."""
SET_SIZE = 12
"""Tools of a set."""
SETS = 20
"""Sets of runs; `DEMONSTRATION_SETS` follow them."""
DEMONSTRATION_SETS = range(SETS, 2 * SETS)
"""Sets whose names occur in demonstrations alone. The names of all sets differ."""
STAGE = 56
"""Training tasks between two entries of tools."""
ENTERING = 3
"""Tools that enter at once. Half of the tasks take one of the newest, the others any that has entered."""
TURNS = 2
"""Requests of a task, all for one tool."""
CODE = re.compile(rf"\b(?:{'|'.join(_NAMES)})-(?:{'|'.join(_NAMES)})\b")
"""The form of a code: two different names."""
_SHOWN = 3
_BLOCK = 1_000_000
"""Tasks per seed."""
_ID = re.compile(rf"hidden_({'|'.join(PARTS)})_(\d{{1,2}})_(\d{{6,12}})")


@dataclass(frozen=True, slots=True)
class HiddenTool:
    """A tool with one argument, and the code that the argument needs behind its value."""

    verb: str
    noun: str
    argument: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.verb}_{self.noun}"

    def call(self, value: str, code: str | None) -> ToolCall:
        """A call with a user's value, and with a code behind it unless that is None."""
        return ToolCall(self.name, {self.argument: value if code is None else f"{value} {code}"})


def draw_code(rng: random.Random) -> str:
    """Any of the 4,032 codes, with equal chances."""
    return "-".join(rng.sample(_NAMES, 2))


@cache
def document_of(tool: HiddenTool) -> ToolDoc:
    """The tool's public document, whose typed parameter carries the hidden rule."""
    schema = {"type": "dict", "properties": {tool.argument: {"type": "string"}}, "required": [tool.argument]}
    document = {"name": tool.name, "description": f"To {tool.verb} the {tool.noun}.", "parameters": schema}
    rule = HiddenRule(tool.code, rf"\w+ {tool.code}")
    parameter = Parameter(tool.argument, ParameterType.STRING, "", required=True, hidden_rule=rule)
    return ToolDoc(tool.name, "Journal", document, (parameter,))


@cache
def tool_set(number: int) -> tuple[HiddenTool, ...]:
    """The tools of a set, in the order in which they enter. No two have the same argument."""
    rng = random.Random(f"hidden tool set {number}")
    shift, half = divmod(number, 2)
    places = range(half * SET_SIZE, (half + 1) * SET_SIZE)
    arguments = rng.sample(_ARGUMENTS, SET_SIZE)
    tools = [
        HiddenTool(_VERBS[(place + shift) % len(_VERBS)], _NOUNS[place], argument, draw_code(rng))
        for place, argument in zip(places, arguments, strict=True)
    ]
    return tuple(rng.sample(tools, SET_SIZE))


def compose(
    rng: random.Random, name: str, part: str, tools: Sequence[HiddenTool], needed: Sequence[HiddenTool]
) -> tuple[Task, list[str]]:
    """A task whose turns need these tools one by one, and the values of its requests, which the part owns."""
    turns, values = [], []
    for tool in needed:
        while owner(value := "".join(rng.choices(_DIGITS, k=2))) != part:
            pass
        text = rng.choice(_TABLE["requests"])
        text = text.format(verb=tool.verb, noun=tool.noun, argument=tool.argument, value=value)
        turns.append(Turn(text, (tool.call(value, tool.code),)))
        values.append(value)
    shown = list(dict.fromkeys(needed))
    others = [tool for tool in tools if tool not in needed]
    shown += rng.sample(others, min(_SHOWN - len(shown), len(others)))
    rng.shuffle(shown)
    setting = _JournalSetting(tuple(tool.name for tool in shown))
    return Task(name, BASE, name, tuple(turns), tuple(map(document_of, shown)), ("Journal",), setting), values


@dataclass(frozen=True)
class _JournalSetting:
    tools: tuple[str, ...]

    def ready(self) -> "type[Journal] | Any":
        return lambda: Journal(self.tools)


class Journal:
    """A world that accepts every call of its tools, and records it."""

    def __init__(self, tools: Sequence[str]) -> None:
        self._tools = frozenset(tools)
        self._entries: list[tuple[str, dict[str, Any]]] = []

    def offers(self, name: str) -> bool:
        return name in self._tools

    def cost(self, call: ToolCall) -> Cost:
        units = CALL + size(call.name) + size(call.arguments)
        return Cost(units, units)

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        """Records the call. A tool that does not exist is an error."""
        if (cost or self.cost(call)).work > MAX_CALL_WORK or call.name not in self._tools:
            return CallResult("There is no such tool, or the call is too long.", is_error=True)
        self._entries.append((call.name, dict(call.arguments)))
        return CallResult("ok", is_error=False)

    def state(self) -> Mapping[str, Any]:
        return {"Journal.entries": list(self._entries)}


@dataclass(frozen=True, slots=True)
class HiddenPool:
    """The tasks of one part and set, without end. Tools enter over the training tasks; dev and test have all."""

    part: str
    set_number: int
    size: int | None = None

    def task_id(self, number: int, seed: int = 0) -> str:
        return f"hidden_{self.part}_{self.set_number}_{seed * _BLOCK + number:06d}"

    def category(self, number: int) -> str:  # noqa: ARG002 - there is one
        return BASE

    def holds(self, task_id: str) -> bool:
        return task_id.startswith(f"hidden_{self.part}_")


class HiddenConventions(TaskSource):
    """Tasks whose tools have hidden conventions. The code of a difficulty is the number of a tool set."""

    name = "hidden"
    about = "tasks on tools whose conventions no document states"
    categories = (BASE,)
    endless = True
    takes_difficulty = True

    def tools(self) -> Mapping[str, ToolDoc]:
        return {tool.name: document_of(tool) for number in range(2 * SETS) for tool in tool_set(number)}

    def owns(self, task_id: str) -> bool:
        return task_id.startswith("hidden_")

    def task(self, task_id: str) -> Task:
        match = _ID.fullmatch(task_id)
        if match is None or int(match[2]) >= SETS or int(match[3]) >= SEEDS * _BLOCK:
            raise UserError(f"task: {task_id!r:.80} is not the id of a hidden task; one is hidden_train_0_000012.")
        part, tools, number = match[1], tool_set(int(match[2])), int(match[3])
        rng = random.Random(task_id)
        entered = tools[: ENTERING * (1 + number % _BLOCK // STAGE)] if part == "train" else tools
        newest = entered[-ENTERING:] if part == "train" and rng.random() < 0.5 else entered
        return compose(rng, task_id, part, entered, [rng.choice(newest)] * TURNS)[0]

    def pool(
        self,
        part: str,
        *,
        split_scheme: str | None = None,  # noqa: ARG002 - parts are disjoint in one way
        difficulty: str | None = None,
        categories: Sequence[str] | None = None,  # noqa: ARG002 - there is one
    ) -> HiddenPool:
        check_known("split", PARTS, part)
        check_known("difficulty", list(map(str, range(SETS))), difficulty or "0")
        return HiddenPool(part, int(difficulty or "0"))

    def split(self, split_scheme: str | None = None, *, seed: int = 0) -> Split:  # noqa: ARG002 - there is none
        raise UserError("split: hidden tasks are generated without end, and cannot be listed.")


SOURCE = HiddenConventions()
