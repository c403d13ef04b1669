"""A task source whose tools have conventions that no document states and that failure profiles reveal.

Each tool takes one argument in a form of its own, such as a cost in cents. A call in another form returns "ok" and has
the wrong effect; the diagnosis names the tool, the argument and the convention. A set has twelve tools, of which three
more enter every `STAGE` training tasks. So guidelines must be found again and again, and other sets need others.
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
_VERBS, _NOUNS = _TABLE["verbs"].split(), _TABLE["nouns"].split()

BASE = "base"
"""The only category."""
SET_SIZE = 12
"""Tools of a set."""
SETS = 20
"""Sets of runs; `DEMONSTRATION_SETS` follow them."""
DEMONSTRATION_SETS = range(SETS, 2 * SETS)
"""Sets whose names occur in demonstrations alone. The names of all sets differ."""
STAGE = 80
"""Training tasks between two entries of tools."""
ENTERING = 3
"""Tools that enter at once. Half of the tasks take one of the newest, the others any that has entered."""
_SHOWN = 3
_BLOCK = 1_000_000
"""Tasks per seed."""
_ID = re.compile(rf"hidden_({'|'.join(PARTS)})_(\d{{1,2}})_(\d{{6,12}})")


@dataclass(frozen=True, slots=True)
class Convention:
    """How a tool takes its argument: its word in failure profiles and guidelines, and the form of the value."""

    word: str
    form: str

    @property
    def rule(self) -> HiddenRule:
        return HiddenRule(self.word, r"\w+".join(map(re.escape, re.split(r"\{\w+\}", self.form))))


CONVENTIONS: Mapping[str, tuple[Convention, ...]] = {
    argument: tuple(Convention(word, form) for word, form in table["conventions"].items())
    for argument, table in _TABLE["arguments"].items()
}
"""Argument → the conventions that a tool can have for it."""


@dataclass(frozen=True, slots=True)
class HiddenTool:
    """A tool with one argument and its convention."""

    verb: str
    noun: str
    argument: str
    convention: Convention

    @property
    def name(self) -> str:
        return f"{self.verb}_{self.noun}"

    def value(self, slots: Mapping[str, str], convention: Convention | None) -> str:
        """The argument of a request with these slots, by a convention or, for None, as the user says it."""
        form: str = _TABLE["arguments"][self.argument]["bare"] if convention is None else convention.form
        return form.format(**slots)


@cache
def document_of(tool: HiddenTool) -> ToolDoc:
    """The tool's public document, whose typed parameter carries the hidden rule."""
    schema = {"type": "dict", "properties": {tool.argument: {"type": "string"}}, "required": [tool.argument]}
    document = {"name": tool.name, "description": f"To {tool.verb} the {tool.noun}.", "parameters": schema}
    rule = tool.convention.rule
    parameter = Parameter(tool.argument, ParameterType.STRING, "", required=True, hidden_rule=rule)
    return ToolDoc(tool.name, "Journal", document, (parameter,))


@cache
def tool_set(number: int) -> tuple[HiddenTool, ...]:
    """The tools of a set, in the order in which they enter: each argument is that of three."""
    rng = random.Random(f"hidden tool set {number}")
    shift, half = divmod(number, 2)
    places = range(half * SET_SIZE, (half + 1) * SET_SIZE)
    arguments = list(CONVENTIONS) * (SET_SIZE // len(CONVENTIONS))
    rng.shuffle(arguments)
    tools = [
        HiddenTool(_VERBS[(place + shift) % len(_VERBS)], _NOUNS[place], argument, rng.choice(CONVENTIONS[argument]))
        for place, argument in zip(places, arguments, strict=True)
    ]
    rng.shuffle(tools)
    return tuple(tools)


def compose(
    rng: random.Random, name: str, part: str, tools: Sequence[HiddenTool], needed: Sequence[HiddenTool]
) -> tuple[Task, list[dict[str, str]]]:
    """A task whose turns need these tools one by one, and the slots of its requests; the part owns their values."""
    turns, slots = [], []
    for tool in needed:
        table = _TABLE["arguments"][tool.argument]
        while True:
            drawn = {slot: "".join(map(rng.choice, letters)) for slot, letters in table["slots"].items()}
            if owner(" ".join(drawn.values())) == part:
                break
        said = table["said"].format(**drawn)
        text = rng.choice(_TABLE["requests"]).format(verb=tool.verb, noun=tool.noun, said=said)
        turns.append(Turn(text, (ToolCall(tool.name, {tool.argument: tool.value(drawn, tool.convention)}),)))
        slots.append(drawn)
    others = [tool for tool in tools if tool not in needed]
    shown = [*needed, *rng.sample(others, min(_SHOWN - len(needed), len(others)))]
    rng.shuffle(shown)
    setting = _JournalSetting(tuple(tool.name for tool in shown))
    return Task(name, BASE, name, tuple(turns), tuple(map(document_of, shown)), ("Journal",), setting), slots


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
        return compose(rng, task_id, part, entered, [rng.choice(newest)])[0]

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
