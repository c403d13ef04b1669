"""`TaskWriter`: the interface of task writers, and the values that they take and return."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from envs.profile import FailureProfile
from envs.specifications import Specification
from policies.proposer import Proposer
from policies.sample import Sample

Check = Callable[[Specification], str | None]
"""Returns the reason, in one sentence, why a specification has no task or is not wanted; None if it has one."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A specification; `rejection` has the reason if it has no task, or could not be read (then it is None).

    `sample` is set if a language model wrote it.
    """

    specification: Specification | None
    rejection: str | None = None
    sample: Sample | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """A specification whose task was played: success `p` of its plain rollouts, and their (discounted) number."""

    specification: Specification
    p: float
    rollouts: float


class TaskWriter(Proposer, Protocol):
    """Writes specifications. It reads the failure profile, and success by specification so far; never a task."""

    role: str = "writer"

    @abstractmethod
    async def write(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> tuple[Draft, ...]:
        """At most `n` drafts. The same arguments and state give the same drafts."""
