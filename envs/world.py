"""The interface of worlds that tools act on: structured calls, results, and the judged state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from envs.allowance import Cost

JSON = Any
"""A JSON value. Python's type checkers gain nothing from spelling the recursion out."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call: a tool's name and keyword arguments (JSON values). It is never rendered into code."""

    name: str
    arguments: Mapping[str, JSON]

    def to_dict(self) -> dict[str, JSON]:
        return {"name": self.name, "arguments": dict(self.arguments)}

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.arguments.items())})"


@dataclass(frozen=True, slots=True)
class CallResult:
    """The text that a call returned, and whether it reports an error."""

    text: str
    is_error: bool


class World(Protocol):
    """The world of one dialogue. Used by one thread at a time; shares nothing with other worlds.

    Calls come from a model: name and arguments can be any JSON. No method may raise for one.
    """

    def offers(self, name: str) -> bool:
        """Whether the world has a tool of that name, shown or not."""

    def cost(self, call: ToolCall) -> Cost:
        """An upper bound of the call's cost in the present state; see `envs/allowance.py`."""

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        """Executes one call, or returns an error. `cost` is the call's, if already computed."""

    def state(self) -> Mapping[str, Any]:
        """The judged state, name → comparable plain value. The names never change."""


class Setting(Protocol):
    """Makes the worlds of a task. Immutable, and shared by all its dialogues."""

    def ready(self) -> Callable[[], World]:
        """Does the expensive work once, and returns a function that makes fresh worlds in the start state.

        Raises `EnvironmentFault` if the start state cannot be built.
        """


class User(Protocol):
    """The user of one dialogue. Model text is data for it, never code or a path."""

    def say(self, turn: int, completions: tuple[str, ...]) -> str:
        """The user's text of turn `turn`, 0-based, after the model's completions of the turn before."""
