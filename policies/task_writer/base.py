"""`TaskWriter`: the interface of task writers, and the values that they take and return."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from envs.profile import FailureProfile
from envs.registry import Registry
from envs.specifications import Specification
from policies.proposer import Proposal, Proposer

Proposals = tuple[Proposal[Specification], ...]
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
    async def propose(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> Proposals:
        """At most `n` proposals. The same arguments and state give the same ones."""


TASK_WRITERS: Registry[type[TaskWriter]] = Registry(
    "task_writer.kind",
    "seal_ray.task_writers",
    {
        "none": "policies.task_writer.plain:NoTaskWriter",
        "static": "policies.task_writer.plain:StaticTaskWriter",
        "random": "policies.task_writer.plain:RandomTaskWriter",
        "shuffled": "policies.task_writer.shuffled:ShuffledTaskWriter",
        "llm": "policies.task_writer.llm:LLMTaskWriter",
    },
)
"""A class without a model is made with the task source and a check of specifications; one with `replays` also gets the
recorded windows of another run and the run's seed. One with `is_model` is a subclass of `LLMTaskWriter` and made like
it."""
