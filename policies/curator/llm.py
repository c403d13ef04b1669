"""`LLMCurator`: a language model that reads the failure profile and writes proposals, frozen or learning.

Its output is hostile input: it is read as JSON, checked against the interface's schema and the leak guard, and
otherwise rejected. Whatever it writes, the solver's training goes on with the incumbent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from envs.dialogue import Message
from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.profile import FailureProfile
from envs.task import JSON
from policies.curator.base import Curator, Proposal, Tried
from policies.curator.proposal_text import PROPOSAL_SCHEMA, messages_for, read_proposal
from policies.documents import Writing, both_ends, fitting_prompt, write_document
from policies.engine import BASE, Engine
from policies.prompting import ChatFormat
from policies.trajectory import derive_seed

_SHOWN = 4
"""Interfaces of earlier windows that a prompt has at most."""

Check = Callable[[Interface], str | None]
"""Why an interface may not be shown, in one sentence; None where it may."""


class LLMCurator(Curator):
    """Proposes what a language model writes, through an engine. It sees the profile, the incumbent, what was `tried`.

    `connect()` gives the engine, anew for each proposal; `policy` names the adapter that writes, or the base. `check`
    is the leak guard's. A proposal of one that `extends` is shown with what is in force, where both are allowed
    together, and else, as that of another, in its place.
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
        self._extends = extends
        self._connect = connect
        self._form = form
        self._writing = writing
        self._check = check
        self._policy = policy
        self._before = self._last = Interface.plain()
        self.tried: Sequence[Tried] = ()
        """Interfaces of earlier windows, the best first; its caller sets them before it asks."""

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal, ...]:
        """`n` proposals, sampled side by side. Raises `EngineDead` where the engine keeps dying."""
        del round_number  # the seed is another one each round
        if incumbent != self._last:
            self._before, self._last = self._last, incumbent
        prompt = self._prompt(profile, incumbent)
        engine = self._connect()
        writing = [self._write(engine, prompt, incumbent, derive_seed(seed, place)) for place in range(n)]
        return tuple(await asyncio.gather(*writing))

    def _prompt(self, profile: FailureProfile, incumbent: Interface) -> tuple[int, ...]:
        """The prompt, with as many of the best and worst interfaces as leave a whole proposal its room."""

        def messages_with(most: int) -> tuple[Message, ...]:
            tried = both_ends(self.tried, most)
            return messages_for(profile, incumbent=incumbent, before=self._before, tried=tried, extends=self._extends)

        return fitting_prompt(self._form, self._writing, messages_with, _SHOWN)

    def get_state(self) -> dict[str, JSON]:
        return {**super().get_state(), "before": interface_to_dict(self._before), "last": interface_to_dict(self._last)}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        super().set_state(state)
        self._before, self._last = interface_from_dict(state["before"]), interface_from_dict(state["last"])

    async def _write(self, engine: Engine, prompt: tuple[int, ...], incumbent: Interface, seed: int) -> Proposal:
        found = await write_document(
            engine,
            self._form,
            self._writing,
            prompt,
            read=read_proposal,
            schema=PROPOSAL_SCHEMA,
            policy=self._policy,
            seed=seed,
            name="proposal",
        )
        if found.value is None:
            return Proposal(incumbent, rejection=found.rejection, sample=found.sample)
        rejection, interface = self._check(found.value), found.value
        if rejection is None and self._extends:
            more = incumbent.with_more(interface)
            interface = more if self._check(more) is None else interface
        return Proposal(incumbent if rejection else interface, rejection=rejection, sample=found.sample)


class CoevolvedCurator(LLMCurator):
    """The same, and its model learns from the rewards of its proposals."""

    learns = True
