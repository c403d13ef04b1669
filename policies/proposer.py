"""Proposers: curators propose interfaces, task writers propose task specifications."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from envs.errors import UserError
from envs.registry import Registry
from envs.task import JSON
from policies.trajectory import Sample

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Proposal(Generic[T]):
    """A proposal: its `value`, or the reason in `rejection`.

    The value of a rejected proposal is None if it could not be read. `sample` is set if a language model wrote it.
    """

    value: T | None
    rejection: str | None = None
    sample: Sample | None = None

    @property
    def accepted(self) -> bool:
        return self.rejection is None and self.value is not None


class Proposer(Protocol):
    """Writes proposals when its caller requests them."""

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


def is_model(kinds: Registry[T], kind: str) -> bool:
    """Whether proposers of this kind are language models. Raises `UserError` for an unknown kind."""
    return bool(getattr(kinds.find(kind), "is_model", False))
