"""`Curator`: what proposes the training-time interface from the solver's failure profile, and the values it gives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from envs.errors import UserError
from envs.interface import Interface
from envs.profile import FailureProfile
from envs.task import JSON
from policies.sample import Sample


@dataclass(frozen=True, slots=True)
class Proposal:
    """One proposed interface. A rejected one has the reason in `rejection`, and carries the incumbent instead.

    `sample` is there where a language model wrote the proposal.
    """

    interface: Interface
    rejection: str | None = None
    sample: Sample | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """An interface that was played, and what it is worth: success above the plain interface, and its standard error."""

    interface: Interface
    gain: float
    error: float


class Curator(Protocol):
    """Proposes interfaces. It sees the failure profile and the incumbent interface, never a task or an answer.

    The caller decides how often it is asked. Asynchronous, since a language model takes seconds.
    """

    kind: str
    """The name of the kind, which its states carry."""

    @abstractmethod
    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal, ...]:
        """At most `n` proposals, and at least one unless `n` is 0; equal ones may be merged.

        The same arguments and state give the same proposals. `round_number` is the round that they are for.
        """

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        return {"kind": self.kind}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        """Goes on from a state that `get_state` gave. Raises `UserError` for that of another kind."""
        if state.get("kind") != self.kind:
            given = state.get("kind")
            raise UserError(f"curator: a state of kind {given!r:.80} was given to a curator of kind {self.kind!r}.")
