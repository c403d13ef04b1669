"""`NoCurator`: always the plain interface, so that the solver trains on the benchmark as published."""

from __future__ import annotations

from collections.abc import Mapping

from envs.interface import Interface
from envs.profile import FailureProfile
from envs.task import JSON
from policies.curator.base import Proposal, check_state


class NoCurator:
    """Always proposes the plain interface.

    It has no settings, so that a run can be repeated without its curator by changing the kind alone.
    """

    kind = "none"

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal, ...]:
        del profile, incumbent, round_number, seed  # nothing changes the plain interface
        return (Proposal(Interface.plain()),) if n else ()

    def get_state(self) -> dict[str, JSON]:
        return {"kind": self.kind}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        check_state(self.kind, state)
