"""`TaskWriter`: the interface of task writers, and the values that they take and return."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from envs.profile import FailureProfile
from envs.specifications import Specification
from policies.proposer import Proposal, Proposer

Check = Callable[[Specification], str | None]
"""Returns the reason, in one sentence, why a specification has no task or is not wanted; None if it has one."""


@dataclass(frozen=True, slots=True)
class Known:
    """A specification whose task was played: success `p` of its plain rollouts, and their (discounted) number."""

    specification: Specification
    p: float
    rollouts: float


class TaskWriter(Proposer, Protocol):
    """Writes specifications. It reads the failure profile, and success by specification so far; never a task."""

    role: str = "task writer"

    @abstractmethod
    async def propose(
        self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int
    ) -> tuple[Proposal[Specification], ...]:
        """At most `n` proposals. The same arguments and state give the same ones."""
