"""`FixedCurator`: one static interface from the start, whatever the solver does."""

from __future__ import annotations

from collections.abc import Mapping

from envs.interface import CueKind, Interface, SchemaCue
from envs.profile import FailureProfile
from envs.task import JSON
from policies.curator.base import Proposal, check_state

STATIC_CUES = Interface(schema_cues=(SchemaCue(CueKind.ENUM), SchemaCue(CueKind.REQUIRED)))
"""The schema cues that the main recipe of SEAL (arXiv 2605.24426) shows throughout training."""


class FixedCurator:
    """Always proposes the interface that it was given."""

    kind = "fixed"

    def __init__(self, interface: Interface = STATIC_CUES) -> None:
        self.interface = interface

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal, ...]:
        del profile, incumbent, round_number, seed  # nothing changes a fixed interface
        return (Proposal(self.interface),) if n else ()

    def get_state(self) -> dict[str, JSON]:
        return {"kind": self.kind}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        check_state(self.kind, state)
