"""`Curator`: the interface of curators, and the values that they return."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from envs.interface import Interface
from envs.profile import FailureProfile
from policies.proposer import Proposer
from policies.sample import Sample


@dataclass(frozen=True, slots=True)
class Proposal:
    """One proposed interface. A rejected one has the reason in `rejection`, and carries the incumbent instead.

    `sample` is set if a language model wrote the proposal.
    """

    interface: Interface
    rejection: str | None = None
    sample: Sample | None = None


@dataclass(frozen=True, slots=True)
class Tried:
    """An interface that was played, its gain in success over the plain interface, and the gain's standard error."""

    interface: Interface
    gain: float
    error: float


class Curator(Proposer, Protocol):
    """Proposes interfaces. It reads the failure profile and the incumbent interface, never a task or an answer."""

    role: str = "curator"

    @abstractmethod
    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal, ...]:
        """At most `n` proposals, and at least one unless `n` is 0; equal ones may be merged.

        The same arguments and state give the same proposals. `round_number` is the round that they are for.
        """
