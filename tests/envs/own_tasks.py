"""Tasks of a small custom world: a player with one drawer and one disc."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from envs.allowance import CALL, Cost, size
from envs.dialects import get_dialect
from envs.dialogue import Dialogue, Protocol
from envs.task import Task, ToolCall, ToolDoc, Turn
from envs.tool_documents import read_tool
from envs.world import CallResult

DIALECT = get_dialect("toolace")


def _tool(name: str, description: str, argument: str) -> ToolDoc:
    schema = {"type": "dict", "properties": {argument: {"type": "integer"}}, "required": [argument]}
    return read_tool({"name": name, "description": description, "parameters": schema}, "Player")


CD = _tool("cd", "Eject the quixotic disc, number 8471.", "drawer")
SPIN = _tool("spin_disc", "Spin the disc.", "speed")


class Player:
    """A world of one drawer and one disc."""

    def __init__(self) -> None:
        self._state: dict[str, Any] = {}

    def offers(self, name: str) -> bool:
        return name in ("cd", "spin_disc")

    def cost(self, call: ToolCall) -> Cost:
        units = CALL + size(call.name) + size(call.arguments)
        return Cost(units, units)

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        if not self.offers(call.name):
            return CallResult("no such tool", is_error=True)
        self._state[call.name] = dict(call.arguments)
        return CallResult(f"{call.name} done", is_error=False)

    def state(self) -> Mapping[str, Any]:
        return {"Player.calls": dict(self._state)}


@dataclasses.dataclass(frozen=True)
class Room:
    """Where the tasks play."""

    def ready(self) -> Callable[[], Player]:
        return Player


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


def own_task(name: str, category: str, *turns: Turn, **more: Any) -> Task:
    return Task(name, category, name, turns, (CD, SPIN), ("Player",), Room(), **more)


class Guest:
    """A user who repeats what was said."""

    def __init__(self) -> None:
        self._asked = 0

    def say(self, turn: int, completions: tuple[str, ...]) -> str:
        assert turn == self._asked, "a user of another dialogue"
        self._asked += 1
        return f"turn {turn}, you said {len(completions)}: {'|'.join(completions)}"


class Rude:
    """A user whose code is broken."""

    def say(self, turn: int, completions: tuple[str, ...]) -> str:
        if turn:
            raise ZeroDivisionError("by completions")
        return "Hello."


def spun(state: Mapping[str, Any]) -> bool:
    return bool(state["Player.calls"].get("spin_disc") == {"speed": 33})


FIXED = own_task("own_0", "fast", Turn("Spin it at 33.", (call("spin_disc", speed=33),)))
TALK = own_task("own_1", "slow", Turn("…", ()), Turn("…", ()), user=Guest, goal=spun)


def played(task: Task, *completions: str, protocol: Protocol = Protocol.OFFICIAL) -> tuple[Dialogue, list[str]]:
    dialogue = Dialogue(task, dialect=DIALECT, protocol=protocol)
    _, info = dialogue.reset()
    said = [info["messages"][-1].content]
    for completion in completions:
        *_, info = dialogue.step(completion)
        said += [message.content for message in info["messages"] if message.role == "user"]
    return dialogue, said
