"""`TaskWriter`: what writes specifications of training tasks, and the values it gives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from envs.errors import UserError
from envs.profile import FailureProfile
from envs.specifications import Specification
from envs.task import JSON
from policies.sample import Sample

Check = Callable[[Specification], str | None]
"""Why there is no task of a specification, or it is not wanted, in one sentence; None where there is one."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What was written: a specification, and the reason in `rejection` where there is no task of it, or it is none.

    `sample` is there where a language model wrote it.
    """

    specification: Specification | None
    rejection: str | None = None
    sample: Sample | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A specification whose task was played: the share of its plain rollouts that succeeded, and how many count."""

    specification: Specification
    p: float
    rollouts: float


class TaskWriter(Protocol):
    """Writes specifications. It sees the failure profile, and success by specification so far; never a task.

    The caller decides how often it is asked. Asynchronous, since a language model takes seconds.
    """

    kind: str
    """The name of the kind, which its states carry."""

    @abstractmethod
    async def write(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> tuple[Draft, ...]:
        """At most `n` drafts. The same arguments and state give the same drafts."""

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        return {"kind": self.kind}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        """Goes on from a state that `get_state` gave. Raises `UserError` for that of another kind."""
        if state.get("kind") != self.kind:
            given = state.get("kind")
            raise UserError(f"writer: a state of kind {given!r:.80} was given to a writer of kind {self.kind!r}.")
