"""`Curator`: the interface of curators, and the values that they return."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from envs.interface import Interface
from envs.profile import FailureProfile
from envs.registry import Registry
from policies.proposer import Proposal, Proposer


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
    ) -> tuple[Proposal[Interface], ...]:
        """At most `n` proposals, and at least one unless `n` is 0; equal ones may be merged.

        The same arguments and state give the same proposals. `round_number` is the round that they are for.
        """


CURATORS: Registry[type[Curator]] = Registry(
    "curator.kind",
    "seal_ray.curators",
    {
        "none": "policies.curator.fixed:NoCurator",
        "fixed": "policies.curator.fixed:FixedCurator",
        "placebo": "policies.curator.fixed:PlaceboCurator",
        "rules": "policies.curator.rules:RulesCurator",
        "rules-static": "policies.curator.rules:StaticRulesCurator",
        "llm": "policies.curator.llm:LLMCurator",
    },
)
"""A class without a model takes its `Settings` from the curator section. One with `is_model` is a subclass of
`LLMCurator` and made like it: it writes through an engine, and its proposals are tried out."""
