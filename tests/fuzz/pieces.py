"""Pieces of hostile completions: fragments, mutations, and calls with values that mean something to a task."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Self

from envs.bfcl.tasks import get_task, load_tasks
from envs.bfcl.world import simulators_of
from envs.dialogue import Dialogue
from envs.task import JSON, Category, Parameter, ParameterType, Task, ToolCall


@dataclass
class Tally:
    """The costs of what was tried: CPU seconds of the slowest, and MiB of memory. Parts add counters of their own."""

    slowest: float = 0.0
    slowest_of: str = ""
    grown: float = 0.0

    def time(self, seconds: float, of: str) -> None:
        if seconds > self.slowest:
            self.slowest, self.slowest_of = seconds, of

    def add(self, other: Self) -> None:
        """Adds the counters of another part, and keeps the larger costs."""
        self.time(other.slowest, other.slowest_of)
        self.grown = max(self.grown, other.grown)
        for name in vars(self).keys() - vars(Tally()).keys():
            setattr(self, name, getattr(self, name) + getattr(other, name))


def first_task(category: Category, *classes: str) -> Task:
    """The first task of the category that involves all the classes."""
    tasks = (task for task in load_tasks().values() if task.category is category)
    return next(task for task in tasks if set(classes) <= set(task.classes))


REFERENCES = (
    get_task("base_8"),  # posts a tweet without tags and mentions: their defaults are lists that Python shares
    first_task(Category.BASE, "MathAPI"),
    first_task(Category.LONG_CONTEXT, "GorillaFileSystem", "TicketAPI"),
    first_task(Category.LONG_CONTEXT, "TravelAPI", "MessageAPI"),
    get_task("long_context_174"),  # as base_8, and long_context's shared cards and bookings
    first_task(Category.LONG_CONTEXT, "VehicleControlAPI"),
    first_task(Category.MISS_FUNC, "TradingBot"),
    first_task(Category.MISS_PARAM, "TravelAPI"),
)
assert len({name for task in REFERENCES for name in task.classes}) == 8, "a simulator is missing"


def observations(task: Task) -> list[str]:
    """The observations of the ground truth, which must succeed."""
    dialogue = Dialogue(task)
    said = [dialogue.reset()[0]]
    for turn in task.turns:
        for completion in ([dialogue.dialect.render_calls(turn.ground_truth)] if turn.ground_truth else []) + ["Done."]:
            text, *_ = dialogue.step(completion)
            said.append(text)
    assert dialogue.success, task.id
    return said


FRAGMENTS = (
    *("<tool_call>", "</tool_call>", "<tool_call>\n", "\n</tool_call>", "<|python_tag|>", "```", "`", "'", '"', "\\"),
    *("{", "}", "[", "]", "(", ")", ":", ",", ";", "=", "*", "**", ".", "-", "#", "\n", "\r", "\t", "\\u", "\\ud800"),
    *("\x00", "\x1b", "\u2028", "\ud83e", '{"name": ', '"arguments": {', '"parameters": {', "null", "true", "None"),
    *("NaN", "-Infinity", "1e999", "9" * 5_000, "lambda: ", "f'{", "b'", "0x", "1j", "...", "__import__('os')"),
    *("for x in ", " if ", "await ", "ls(", "cd(folder=", ":="),
)


def leaves(value: JSON) -> list[JSON]:
    """The keys and scalars of a JSON value."""
    if isinstance(value, Mapping):
        return [*value, *(leaf for item in value.values() for leaf in leaves(item))]
    return [leaf for item in value for leaf in leaves(item)] if isinstance(value, list) else [value]


@cache
def known_values(task: Task) -> Sequence[JSON]:
    """The names, ids, texts and amounts that occur in the task's start and solution."""
    calls = [dict(made.arguments) for turn in task.turns for made in turn.ground_truth]
    return tuple(leaf for leaf in leaves([dict(simulators_of(task).initial_config), calls]) if leaf is not None)


def truncated(rng: random.Random, text: str, other: str) -> str:
    return text[: rng.randint(0, len(text))]


def spliced(rng: random.Random, text: str, other: str) -> str:
    return text[: rng.randint(0, len(text))] + other[rng.randint(0, len(other)) :]


def repeated(rng: random.Random, text: str, other: str) -> str:
    start = rng.randint(0, len(text))
    end = rng.randint(start, len(text))
    return text[:end] + text[start:end] * rng.randint(1, 30) + text[end:]


def interrupted(rng: random.Random, text: str, other: str) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + "".join(rng.choices(FRAGMENTS, k=rng.randint(1, 4))) + text[place:]


def replaced(rng: random.Random, text: str, other: str) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + chr(rng.randrange(sys.maxunicode + 1)) + text[place + 1 :]


MUTATIONS: Sequence[Callable[[random.Random, str, str], str]] = (truncated, spliced, repeated, interrupted, replaced)


def mutated(rng: random.Random, texts: Sequence[str]) -> str:
    text, other = rng.choice(texts), rng.choice(texts)
    for mutate in rng.choices(MUTATIONS, k=rng.randint(1, 2)):
        text = mutate(rng, text, other)
    return text


def sensible_call(rng: random.Random, task: Task) -> ToolCall:
    """A call of one of the task's tools with values that mean something to the task, mostly of the right type."""
    known = known_values(task)
    texts, numbers = [v for v in known if isinstance(v, str)], [v for v in known if isinstance(v, int | float)] or [0]

    def value(parameter: Parameter) -> JSON:
        match parameter.type:
            case ParameterType.INTEGER | ParameterType.FLOAT:
                return rng.choice(numbers)
            case ParameterType.ARRAY:
                return rng.choices(texts if rng.random() < 0.7 else known, k=rng.randint(0, 3))
            case ParameterType.DICT:
                return {rng.choice(["status", "priority", "title"]): rng.choice(known)}
        return rng.choice(texts if rng.random() < 0.9 else known)

    tool = rng.choice(task.all_tools)
    return ToolCall(tool.name, {p.name: value(p) for p in tool.parameters if p.required or rng.random() < 0.3})
