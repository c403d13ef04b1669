"""`LLMCurator`: a language model that reads the failure profile and writes proposals, frozen or learning.

Its output is hostile input: it is read as JSON, checked against the interface's schema and the leak guard, and
otherwise rejected. In any case the solver's training continues with the incumbent.
"""

from collections.abc import Callable, Mapping, Sequence

from envs.dialogue import Message
from envs.interface import Interface
from envs.interface.json_form import interface_from_dict, interface_to_dict
from envs.profile import FailureProfile
from envs.task import JSON
from policies.curator.base import Curator, Tried
from policies.curator.proposal_text import PROPOSAL_SCHEMA, messages_for, read_proposal
from policies.engine import BASE, Sampler
from policies.prompting import ChatFormat
from policies.proposal_sampling import ProposalSampler, Writing, both_ends
from policies.proposer import Proposal

_SHOWN = 4
"""Largest number of interfaces of earlier windows in a prompt."""

Check = Callable[[Interface], str | None]
"""Returns the reason, in one sentence, why an interface may not be shown; None if it may."""


class LLMCurator(Curator):
    """Proposes what a language model writes. It reads the profile, the incumbent, and the interfaces `tried` before.

    `connect` returns the engine, for each call of `propose`; `policy` is the adapter that writes, or the base.
    """

    kind = "llm"
    is_model = True

    def __init__(
        self, connect: Callable[[], Sampler], form: ChatFormat, writing: Writing, *, check: Check, policy: str = BASE
    ) -> None:
        self._sampler = ProposalSampler(
            connect, form, writing, policy, "proposal", PROPOSAL_SCHEMA, read_proposal, check
        )
        self._before = self._last = Interface.plain()
        self.tried: Sequence[Tried] = ()
        """Interfaces of earlier windows, the best first; set by the caller before `propose`."""
        self.reads_interfaces = True
        """Whether it reads the incumbent and those tried; a model that learns what helps would copy them."""

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal[Interface], ...]:
        """`n` proposals, sampled concurrently. Raises `EngineDead` if the engine keeps dying."""
        del round_number  # the seed differs in each round
        if incumbent != self._last:
            self._before, self._last = self._last, incumbent

        def messages_with(most: int) -> tuple[Message, ...]:
            if not self.reads_interfaces:
                return messages_for(profile, incumbent=Interface.plain(), before=Interface.plain())
            tried = both_ends(self.tried, most)
            return messages_for(profile, incumbent=incumbent, before=self._before, tried=tried)

        return await self._sampler.sample(messages_with, _SHOWN, n=n, seed=seed)

    def get_state(self) -> dict[str, JSON]:
        return {**super().get_state(), "before": interface_to_dict(self._before), "last": interface_to_dict(self._last)}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        super().set_state(state)
        self._before, self._last = interface_from_dict(state["before"]), interface_from_dict(state["last"])
