"""Playing trajectories through a `Dialogue`, and taking exams, in the tests."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.dialects import DIALECTS, Dialect
from envs.dialogue import Dialogue, Protocol
from envs.exams import Conversation, Item, Mark, Said
from envs.interface import Interface
from envs.task import Task, ToolCall
from envs.trace import CallRecord

Action = tuple[ToolCall, ...] | str
"""One completion: calls, or a text that is not one."""


def begun(task: Task, **settings: Any) -> Dialogue:
    """A dialogue at its start."""
    dialogue = Dialogue(task, **settings)
    dialogue.reset()
    return dialogue


def play(
    task: Task,
    turns: Sequence[Sequence[Action]],
    *,
    dialect: Dialect = DIALECTS["qwen"],
    protocol: Protocol = Protocol.OFFICIAL,
    interface: Interface = Interface.plain(),
) -> Dialogue:
    """Plays the actions of every turn, each turn ended by a word, as far as the dialogue lets it; returns it, over."""
    dialogue = begun(task, dialect=dialect, protocol=protocol, interface=interface)
    for index, actions in enumerate(turns):
        for action in actions:
            if dialogue.over or dialogue.turn != index:
                break
            dialogue.step(action if isinstance(action, str) else dialect.render_calls(action))
        if not dialogue.over and dialogue.turn == index:
            dialogue.step("That is all.")
    assert dialogue.over
    return dialogue


def play_ground_truth(task: Task, *, dialect: Dialect = DIALECTS["qwen"]) -> Dialogue:
    """Plays the ground truth, one completion a turn."""
    return play(task, [[turn.ground_truth] if turn.ground_truth else [] for turn in task.turns], dialect=dialect)


def calls_made(dialogue: Dialogue) -> list[list[list[ToolCall]]]:
    """turn → step → call, of the steps that called something."""
    return [[[record.call for record in step.calls] for step in turn if step.calls] for turn in dialogue.trace.turns]


def results_shown(dialogue: Dialogue) -> list[list[list[str]]]:
    """turn → step → result text, of the same steps."""
    return [[[record.result for record in step.calls] for step in turn if step.calls] for turn in dialogue.trace.turns]


def records(dialogue: Dialogue) -> list[CallRecord]:
    """All records of calls."""
    return [record for turn in dialogue.trace.turns for step in turn for record in step.calls]


@dataclass
class Scripted:
    """A candidate that says the same to everything, or a function of the conversation, and remembers the questions."""

    says: str | Callable[[Conversation], str]
    dialect: Dialect = DIALECTS["qwen"]
    end: str = "stop"
    asked: list[Conversation] = field(default_factory=list)

    async def answer(self, conversation: Conversation) -> Said:
        self.asked.append(conversation)
        return Said(self.says if isinstance(self.says, str) else self.says(conversation), end=self.end)


def sit(item: Item, candidate: Scripted, before: Any = None) -> Mark:
    return asyncio.run(item.sit(candidate, before))


def mark(item: Item, says: str, dialect: str = "qwen", end: str = "stop") -> Mark:
    """The mark of an answer."""
    return sit(item, Scripted(says, DIALECTS[dialect], end))
