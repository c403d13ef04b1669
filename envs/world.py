"""A world that tools act on: structured calls, their results, and the state that is judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from envs.allowance import Cost

JSON = Any
"""A JSON value. Python's type checkers gain nothing from spelling the recursion out."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call as data: a tool's name and keyword arguments (JSON values). It is never rendered into code."""

    name: str
    arguments: Mapping[str, JSON]

    def to_dict(self) -> dict[str, JSON]:
        return {"name": self.name, "arguments": dict(self.arguments)}

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{key}={value!r}' for key, value in self.arguments.items())})"


@dataclass(frozen=True, slots=True)
class CallResult:
    """The text that a call returned, which is shown and judged, and whether it reports an error."""

    text: str
    is_error: bool


class World(Protocol):
    """What the tools of one dialogue act on. It is used by one thread at a time and shares nothing with other worlds.

    A call comes from a model: its name and arguments can be any JSON values. None of these methods may raise for one.
    """

    def offers(self, name: str) -> bool:
        """Whether there is a tool of that name, shown to the model or not."""
        ...

    def cost(self, call: ToolCall) -> Cost:
        """What the call may cost at most in the present state; `envs/allowance.py` says in which units."""
        ...

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        """Executes one call, or answers with an error. `cost` is the call's, where it is known already."""
        ...

    def state(self) -> Mapping[str, Any]:
        """The state that is judged, name → comparable plain value. The names are always the same."""
        ...


class Setting(Protocol):
    """Where a task plays. Immutable, and shared by all dialogues of the task."""

    def ready(self) -> Callable[[], World]:
        """Does the expensive work once; each call of what it returns makes a fresh world in the start state.

        Raises `EnvironmentFault` where the start state cannot be built.
        """
        ...


class User(Protocol):
    """The user of one dialogue, who answers what the model said. What a model said is data, never code or a path."""

    def say(self, turn: int, completions: tuple[str, ...]) -> str:
        """The user's text of turn `turn`, 0-based; `completions` are the model's of the turn before, in order."""
        ...
