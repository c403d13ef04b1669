"""The nouns of a problem: `Task`, its `Turn`s, the `ToolDoc`s it shows and the `ToolCall`s that solve it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from envs.world import JSON, Setting, ToolCall, User

__all__ = ["JSON", "Category", "Parameter", "ParameterType", "Task", "ToolCall", "ToolDoc", "Turn", "in_order"]


class Category(StrEnum):
    """The four categories that the built-in sources share; a source can have others.

    Each poses the same scenarios with another difficulty.
    """

    BASE = "base"
    """Every tool is shown and every needed value is given."""
    MISS_FUNC = "miss_func"
    """A needed tool is held out, and revealed one turn after it was needed first."""
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


def in_order(categories: Iterable[str]) -> list[str]:
    """Categories without repetition: the common four first, in their order, then others as they come."""
    found = dict.fromkeys(map(str, categories))
    return [*(str(each) for each in Category if each in found), *(each for each in found if each not in list(Category))]


@dataclass(frozen=True, slots=True)
class Parameter:
    """One documented argument of a tool.

    `enum` holds the allowed values, parsed from the "[Enum]: …" text of the description; for an array they bind each
    item. `items` describes an array's items, `properties` a dict's keys.
    """

    name: str
    type: ParameterType
    description: str
    required: bool
    enum: tuple[str, ...] = ()
    items: Parameter | None = None
    properties: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ToolDoc:
    """The public documentation of one tool. Immutable; compared and hashed by identity, like `Task`.

    `document` is the JSON document that a model is shown; `parameters` is the same information typed, for checking
    calls. An `Interface` may show a changed `document`; it never changes `parameters`.
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
        """The documented argument of that name, or None."""
        return next((parameter for parameter in self.parameters if parameter.name == name), None)


@dataclass(frozen=True, slots=True)
class Turn:
    """One user turn.

    `user` is the user's text, or None in the turn that reveals held-out tools; where the task has a user who answers,
    it is an example of such a text. `revealed` holds the documents of those tools; an empty `ground_truth` means that
    the right thing is to call nothing, unless the task has a goal.
    """

    user: str | None
    ground_truth: tuple[ToolCall, ...]
    revealed: tuple[ToolDoc, ...] = ()


@dataclass(frozen=True, eq=False)
class Task:
    """One multi-turn problem. Immutable; compared and hashed by identity, since `id` names it and its content is large.

    `tools` are the documents shown from the start; `classes` names the parts of the world that are involved, for
    filters and counts; `scenario` is the id shared by all variants of the same story, which must stay on one side of a
    split; `setting` is where the task plays.

    With `user`, which makes the user of one dialogue, the user answers what the model said in place of the turns' fixed
    texts. With `goal` the task is judged by its final state alone, and the ground truth of its turns, where it has any,
    is only an example. A world, user or goal that raises is an `EnvironmentFault`.
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
        """The documents a model has been shown by the start of turn `turn` (0-based)."""
        revealed = tuple(doc for past in self.turns[: turn + 1] for doc in past.revealed)
        return self.tools + revealed

    @property
    def all_tools(self) -> tuple[ToolDoc, ...]:
        """Every document of the task, held-out ones included."""
        return self.tools_at(len(self.turns) - 1)
