"""What a dialogue acts on: a `World`, which executes calls and has a state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from envs.allowance import Cost
from envs.task import ToolCall


@dataclass(frozen=True, slots=True)
class CallResult:
    """The text that a call returned, which is shown and judged, and whether it reports an error."""

    text: str
    is_error: bool


class World(Protocol):
    """The tools of one dialogue and their state. It belongs to one dialogue and one thread at a time.

    Calls come from a model: whatever they hold, no method raises, and each comes back within a bounded time.
    """

    def offers(self, name: str) -> bool:
        """Whether there is a tool of that name, shown to the model or not."""
        ...

    def cost(self, call: ToolCall) -> Cost:
        """What the call may cost at most in the present state; see `envs/allowance.py`."""
        ...

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        """Executes one call. `cost` is the call's, where it is known already."""
        ...

    def state(self) -> Mapping[str, Any]:
        """The comparable state: name → value with `==`, viewed and not copied."""
        ...
