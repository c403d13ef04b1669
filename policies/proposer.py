"""The base of curators and task writers: a kind, and a state that names it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from envs.errors import UserError
from envs.task import JSON


class Proposer(Protocol):
    """Writes proposals when its caller asks for them."""

    kind: str
    """The name of the kind, which its states carry."""
    role: str = "proposer"
    """Its name in error messages."""

    def get_state(self) -> dict[str, JSON]:
        """The state for a checkpoint, as JSON values."""
        return {"kind": self.kind}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        """Continues from a state of `get_state`. Raises `UserError` for a state of another kind."""
        if (given := state.get("kind")) != self.kind:
            role = self.role
            raise UserError(f"{role}: a state of kind {given!r:.80} was given to a {role} of kind {self.kind!r}.")
