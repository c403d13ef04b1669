"""API-Bank as a task source: its dialogues are played through, their users' texts in order.

The environment variable `API_BANK_DATA` names the benchmark's folder. All tasks are of the part test: nobody trains on
them. Dialogues without a call are left out, and those whose recorded calls are not correct by their APIs' own rules
when they are made one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

from envs.apibank.data import (
    ID_PREFIX,
    LEVELS,
    SEARCH,
    RecordedDialogue,
    Text,
    folder_of,
    read_dialogues,
    read_tools,
    recorded_results,
    typed,
)
from envs.apibank.simulators import ApiSimulators, Recorded
from envs.apibank.world import Bank
from envs.sources import Split, TaskSet, TaskSource
from envs.task import Task, ToolDoc, Turn


class ApiBank(TaskSource):
    """The dialogues of levels 1 and 2. They are read when first asked for; `UserError` where they cannot be."""

    name = "api-bank"
    about = "dialogues of API-Bank"
    parts = ("test",)
    categories = tuple(LEVELS)

    def tools(self) -> Mapping[str, ToolDoc]:
        return self._tasks.tools()

    def owns(self, task_id: str) -> bool:
        return task_id.startswith(ID_PREFIX)

    def task(self, task_id: str) -> Task:
        return self._tasks.task(task_id)

    def split(self, division: str | None = None, *, seed: int = 0) -> Split:
        return self._tasks.split(division, seed=seed)

    @cached_property
    def _tasks(self) -> TaskSet:
        folder = folder_of()
        dialogues = read_dialogues(folder)
        simulators = ApiSimulators(folder, recorded_results(dialogues))
        tools = read_tools(simulators.describe())
        played = [task_of(dialogue, simulators, tools) for dialogue in dialogues if dialogue.calls]
        return TaskSet(self.name, self.about, {"test": [task for task in played if task is not None]})


def task_of(dialogue: RecordedDialogue, simulators: ApiSimulators, tools: Mapping[str, ToolDoc]) -> Task | None:
    """The task of a dialogue; None where its recorded calls, made one after the other, are not all correct."""
    truths = tuple(Recorded(typed(each.call, tools.get(each.call.name)), each.result) for each in dialogue.calls)
    bank = Bank(simulators, frozenset(tools), truths)
    world = bank.ready()()
    for place, truth in enumerate(truths):
        world.execute(truth.call)
        if place not in world.made:
            return None
    changing = frozenset(place for place, changed in world.made.items() if changed)
    names = [SEARCH] if dialogue.level == list(LEVELS)[1] else list(dict.fromkeys(each.call.name for each in truths))
    return Task(
        id=dialogue.id,
        category=dialogue.level,
        scenario=dialogue.id,
        turns=_turns(dialogue, truths),
        tools=tuple(tools[name] for name in names),
        classes=("ApiBank",),
        setting=replace(bank, changing=changing),
    )


def _turns(dialogue: RecordedDialogue, truths: tuple[Recorded, ...]) -> tuple[Turn, ...]:
    """A turn for each text of the user's, with the calls up to the next one."""
    waiting = list(truths)
    said: list[str] = []
    calls: list[list[Recorded]] = []
    for row in dialogue.rows:
        if isinstance(row, Recorded):
            calls[-1].append(waiting.pop(0))
        elif isinstance(row, Text) and row.user:
            said.append(row.text)
            calls.append([])
    return tuple(Turn(text, tuple(each.call for each in made)) for text, made in zip(said, calls, strict=True))


SOURCE = ApiBank()
