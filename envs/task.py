"""The nouns of a problem: `Task`, `Turn`, `ToolDoc` and `ToolCall`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from envs.world import JSON, Setting, ToolCall, User

__all__ = [
    "JSON",
    "Category",
    "HiddenRule",
    "Parameter",
    "ParameterType",
    "Task",
    "ToolCall",
    "ToolDoc",
    "Turn",
    "sorted_categories",
]


class Category(StrEnum):
    """The four categories of the built-in sources; each makes the same scenarios hard in another way."""

    BASE = "base"
    """Every tool is shown and every needed value is given."""
    MISS_FUNC = "miss_func"
    """A needed tool is held out, and revealed one turn after it was first needed."""
    MISS_PARAM = "miss_param"
    """A needed value is left out by the user, and supplied one turn later."""
    LONG_CONTEXT = "long_context"
    """As base, with so much state that results become long."""


class ParameterType(StrEnum):
    """The argument types that tool documents use."""

    STRING = "string"
    INTEGER = "integer"
    FLOAT = "float"
    BOOLEAN = "boolean"
    ARRAY = "array"
    DICT = "dict"


def sorted_categories(categories: Iterable[str]) -> list[str]:
    """Categories without repetition: the common four first, in their order, then others as they come."""
    names = dict.fromkeys(map(str, categories))
    return [*(str(each) for each in Category if each in names), *(each for each in names if each not in list(Category))]


@dataclass(frozen=True, slots=True)
class HiddenRule:
    """A rule for an argument's value that no document states: its name in diagnoses, and the pattern of the value."""

    name: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Parameter:
    """One documented argument of a tool.

    `enum` has the allowed values, of each item if it is an array. `items` describes an array's items, `properties` a
    dict's keys. No document and no cue shows `hidden_rule`.
    """

    name: str
    type: ParameterType
    description: str
    required: bool
    enum: tuple[str, ...] = ()
    items: Parameter | None = None
    properties: tuple[Parameter, ...] = ()
    hidden_rule: HiddenRule | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ToolDoc:
    """The public documentation of one tool. Immutable; compared and hashed by identity.

    `document` is the JSON that a model is shown; `parameters` is the same, typed, for checking calls. An `Interface`
    may change `document`, never `parameters`.
    """

    name: str
    class_name: str
    document: Mapping[str, JSON]
    parameters: tuple[Parameter, ...]

    @property
    def required(self) -> tuple[str, ...]:
        """Names of the required arguments, in documented order."""
        return tuple(parameter.name for parameter in self.parameters if parameter.required)

    def parameter(self, name: str) -> Parameter | None:
        """The documented argument of that name, if any."""
        return next((parameter for parameter in self.parameters if parameter.name == name), None)


@dataclass(frozen=True, slots=True)
class Turn:
    """One user turn, with the tools that it reveals.

    The user's text is None in a turn that reveals tools, and an example only if the task has a `user`. An empty ground
    truth means that nothing should be called, unless the task has a goal.
    """

    user: str | None
    ground_truth: tuple[ToolCall, ...]
    revealed: tuple[ToolDoc, ...] = ()


@dataclass(frozen=True, eq=False)
class Task:
    """One multi-turn problem. Immutable; compared and hashed by identity, since its content is large.

    All variants of one story share a `scenario` and must stay on one side of a split. `tools` are shown from the start.
    `classes` are the involved parts of the world, for filters and counts. `user` makes the user of one dialogue, who
    replaces the turns' fixed texts; `goal` judges the final state, instead of the turns' ground truth.
    """

    id: str
    category: str
    scenario: str
    turns: tuple[Turn, ...]
    tools: tuple[ToolDoc, ...]
    classes: tuple[str, ...]
    setting: Setting
    user: Callable[[], User] | None = None
    goal: Callable[[Mapping[str, Any]], bool] | None = None

    def tools_at(self, turn: int) -> tuple[ToolDoc, ...]:
        """The documents shown by the start of turn `turn` (0-based)."""
        revealed = tuple(doc for past in self.turns[: turn + 1] for doc in past.revealed)
        return self.tools + revealed

    @property
    def all_tools(self) -> tuple[ToolDoc, ...]:
        """Every document of the task, held-out ones included."""
        return self.tools_at(len(self.turns) - 1)
