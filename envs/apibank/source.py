"""API-Bank as a task source: its dialogues are played, with their users' texts in order.

The environment variable `API_BANK_DATA` names the benchmark's folder. All tasks are in the part test. Dialogues without
a call are left out, and dialogues whose recorded calls their APIs' own rules reject.

The world's state says which recorded calls that change a database were made, as their APIs' rules see it, and how often
another call changed one. Calls that only read are compared by their results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from envs.allowance import CALL, MAX_CALL_WORK, Cost, size
from envs.apibank import data
from envs.apibank.exam import result_text
from envs.apibank.simulators import ApiSimulators, Recorded
from envs.sources import Split, TaskSet, TaskSource
from envs.task import Task, ToolCall, ToolDoc, Turn
from envs.world import CallResult

WORK, KEPT = 400_000, 100_000
"""Cost of a call without its arguments: 20 calls fit into a step and 40 into a dialogue."""


@dataclass(frozen=True, eq=False)
class Bank:
    """The setting of a task: simulators, names of their APIs, recorded calls, and which of these change a database."""

    simulators: ApiSimulators
    names: frozenset[str]
    truths: tuple[Recorded, ...]
    changing: frozenset[int] = frozenset()

    def ready(self) -> Callable[[], ApiBankWorld]:
        return lambda: ApiBankWorld(self)


class ApiBankWorld:
    """The databases of one dialogue, as the effect of its calls on the initial ones."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._calls: list[ToolCall] = []
        self.made: dict[int, bool] = {}
        """Index of each recorded call that was made → whether it changed a database."""
        self._others = 0
        self._broken = False

    def offers(self, name: str) -> bool:
        return name in self._bank.names

    def cost(self, call: ToolCall) -> Cost:
        own = CALL + size(call.name) + size(call.arguments)
        return Cost(own + WORK, own + KEPT)

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        """Executes one call, unless an earlier one has ended the simulators' process."""
        if (cost or self.cost(call)).work > MAX_CALL_WORK:
            return _error("The call would read too much.")
        if self._broken:
            return _error("The APIs do not answer any more.")
        played = self._bank.simulators.play(self._calls, call, self._bank.truths)
        self._broken = played.ended
        if played.error is not None:
            return _error(played.error)
        self._calls.append(call)
        place = next((place for place in sorted(played.correct) if place not in self.made), None)
        if place is not None:
            self.made[place] = played.changed
        elif played.changed:
            self._others += 1
        failed = isinstance(played.result, dict) and played.result.get("exception") is not None
        return CallResult(result_text(played.result), is_error=failed)

    def state(self) -> Mapping[str, Any]:
        made = tuple(sorted(self._bank.changing & self.made.keys()))
        return {"ApiBank.made": made, "ApiBank.other_changes": self._others}


def _error(text: str) -> CallResult:
    return CallResult(result_text({"exception": text}), is_error=True)


class ApiBank(TaskSource):
    """The dialogues of levels 1 and 2, read on first use, which can raise `UserError`."""

    name = "api-bank"
    about = "dialogues of API-Bank"
    parts = ("test",)
    categories = tuple(data.LEVELS)

    def tools(self) -> Mapping[str, ToolDoc]:
        return self._tasks.tools()

    def owns(self, task_id: str) -> bool:
        return task_id.startswith(data.ID_PREFIX)

    def task(self, task_id: str) -> Task:
        return self._tasks.task(task_id)

    def split(self, split_scheme: str | None = None, *, seed: int = 0) -> Split:
        return self._tasks.split(split_scheme, seed=seed)

    @cached_property
    def _tasks(self) -> TaskSet:
        folder = data.folder_of()
        dialogues = data.read_dialogues(folder)
        simulators = ApiSimulators(folder, data.recorded_results(dialogues))
        tools = data.read_tools(simulators.describe())
        played = [task_of(dialogue, simulators, tools) for dialogue in dialogues if dialogue.calls]
        return TaskSet(self.name, self.about, {"test": [task for task in played if task is not None]})


def task_of(dialogue: data.RecordedDialogue, simulators: ApiSimulators, tools: Mapping[str, ToolDoc]) -> Task | None:
    """The task of a dialogue; None unless all of its recorded calls, made in order, are correct."""
    truths = tuple(Recorded(data.typed(each.call, tools.get(each.call.name)), each.result) for each in dialogue.calls)
    bank = Bank(simulators, frozenset(tools), truths)
    world = bank.ready()()
    for place, truth in enumerate(truths):
        world.execute(truth.call)
        if place not in world.made:
            return None
    changing = frozenset(place for place, changed in world.made.items() if changed)
    return Task(
        id=dialogue.id,
        category=dialogue.level,
        scenario=dialogue.id,
        turns=_turns(dialogue, truths),
        tools=tuple(tools[name] for name in dialogue.shown_names),
        classes=("ApiBank",),
        setting=replace(bank, changing=changing),
    )


def _turns(dialogue: data.RecordedDialogue, truths: tuple[Recorded, ...]) -> tuple[Turn, ...]:
    """A turn for each text of the user, with the calls up to the next one."""
    waiting = list(truths)
    said: list[str] = []
    calls: list[list[Recorded]] = []
    for row in dialogue.rows:
        if isinstance(row, Recorded):
            calls[-1].append(waiting.pop(0))
        elif isinstance(row, data.Text) and row.user:
            said.append(row.text)
            calls.append([])
    return tuple(Turn(text, tuple(each.call for each in made)) for text, made in zip(said, calls, strict=True))


SOURCE = ApiBank()
