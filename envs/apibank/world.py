"""The world of a dialogue that is played through: calls change the databases, and each is judged by its API's own rule.

The state that is compared says which of the recorded calls that change a database were made, as their rules see it, and
how often one was changed by a call that is none of them: two calls that the benchmark takes for the same are the same
here. Calls that only read show in their results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from envs.allowance import CALL, MAX_CALL_WORK, Cost, size
from envs.apibank.exam import result_text
from envs.apibank.simulators import ApiSimulators, Recorded
from envs.task import ToolCall
from envs.world import CallResult

WORK, KEPT = 400_000, 100_000
"""What a call costs beside its arguments: 20 calls a step and 40 a dialogue; the longest ground truth has 8."""


@dataclass(frozen=True, eq=False)
class Bank:
    """Where a task plays: the simulators, the names of their APIs, and the dialogue's recorded calls.

    `changing` has the places of those that change a database.
    """

    simulators: ApiSimulators
    names: frozenset[str]
    truths: tuple[Recorded, ...]
    changing: frozenset[int] = frozenset()

    def ready(self) -> Callable[[], ApiBankWorld]:
        return lambda: ApiBankWorld(self)


class ApiBankWorld:
    """The databases of one dialogue. They are what its calls made of those of the beginning."""

    def __init__(self, bank: Bank) -> None:
        self._bank = bank
        self._calls: list[ToolCall] = []
        self.made: dict[int, bool] = {}
        """The recorded calls that were made, by their places, and whether they changed a database."""
        self._others = 0
        self._broken = False

    def offers(self, name: str) -> bool:
        return name in self._bank.names

    def cost(self, call: ToolCall) -> Cost:
        own = CALL + size(call.name) + size(call.arguments)
        return Cost(own + WORK, own + KEPT)

    def execute(self, call: ToolCall, cost: Cost | None = None) -> CallResult:
        """Executes one call. After one that ended the simulators' process none is executed any more."""
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
