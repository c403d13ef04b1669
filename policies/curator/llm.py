"""`LLMCurator`: a language model that reads the failure profile and writes proposals, frozen or learning.

Its output is hostile input: it is read as JSON, checked against the interface's schema and the leak guard, and
otherwise rejected. In any case the solver's training continues with the incumbent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from envs.dialogue import Message
from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.profile import FailureProfile
from envs.task import JSON
from policies.curator.base import Curator, Proposal, Tried
from policies.curator.proposal_text import PROPOSAL_SCHEMA, messages_for, read_proposal
from policies.documents import Document, DocumentSampler, Writing, both_ends
from policies.engine import BASE, Engine
from policies.prompting import ChatFormat

_SHOWN = 4
"""Largest number of interfaces of earlier windows in a prompt."""

Check = Callable[[Interface], str | None]
"""Returns the reason, in one sentence, why an interface may not be shown; None if it may."""


class LLMCurator(Curator):
    """Proposes what a language model writes. It reads the profile, the incumbent, and the interfaces `tried` before.

    Args:
        connect: Returns the engine, for each call of `propose`.
        form: The model's chat format.
        writing: How proposals are sampled.
        check: The leak guard's check.
        kind: The curator's kind.
        policy: The adapter that writes, or the base.
        extends: A proposal is added to the incumbent if both are allowed together; otherwise it replaces it.
    """

    is_model = True
    learns = False

    def __init__(
        self,
        connect: Callable[[], Engine],
        form: ChatFormat,
        writing: Writing,
        *,
        check: Check,
        kind: str = "llm",
        policy: str = BASE,
        extends: bool = False,
    ) -> None:
        self.kind = kind
        self._sampler = DocumentSampler(connect, form, writing, policy, "proposal", PROPOSAL_SCHEMA, read_proposal)
        self._check = check
        self._extends = extends
        self._before = self._last = Interface.plain()
        self.tried: Sequence[Tried] = ()
        """Interfaces of earlier windows, the best first; set by the caller before `propose`."""

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal, ...]:
        """`n` proposals, sampled concurrently. Raises `EngineDead` if the engine keeps dying."""
        del round_number  # the seed differs in each round
        if incumbent != self._last:
            self._before, self._last = self._last, incumbent

        def messages_with(most: int) -> tuple[Message, ...]:
            tried = both_ends(self.tried, most)
            return messages_for(profile, incumbent=incumbent, before=self._before, tried=tried, extends=self._extends)

        documents = await self._sampler.sample(messages_with, _SHOWN, n=n, seed=seed)
        return tuple(self._proposal(document, incumbent) for document in documents)

    def get_state(self) -> dict[str, JSON]:
        return {**super().get_state(), "before": interface_to_dict(self._before), "last": interface_to_dict(self._last)}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        super().set_state(state)
        self._before, self._last = interface_from_dict(state["before"]), interface_from_dict(state["last"])

    def _proposal(self, document: Document[Interface], incumbent: Interface) -> Proposal:
        interface, rejection = document.value, document.rejection
        if interface is not None:
            rejection = self._check(interface)
            if rejection is None and self._extends:
                more = incumbent.merged_with(interface)
                interface = more if self._check(more) is None else interface
        return Proposal(incumbent if interface is None or rejection else interface, rejection, document.sample)


class CoevolvedCurator(LLMCurator):
    """An `LLMCurator` whose model learns from the rewards of its proposals."""

    learns = True
