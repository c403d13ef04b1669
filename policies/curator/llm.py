"""`LLMCurator`: a language model that reads the failure profile and writes proposals, frozen or learning.

Its output is hostile input: it is read as JSON, checked against the interface's schema and the leak guard, and
otherwise rejected. Whatever it writes, the solver's training goes on with the incumbent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from envs.errors import UserError
from envs.interface import Interface
from envs.interface.document import interface_from_dict, interface_to_dict
from envs.profile import FailureProfile
from envs.task import JSON
from policies.curator.base import Curator, Proposal, Tried
from policies.curator.proposal_text import PROPOSAL_SCHEMA, best_and_worst, messages_for, read_proposal
from policies.engine import BASE, BadRequest, Engine, EngineDead, Finish, GenRequest, GenResult
from policies.prompting import ChatFormat
from policies.sample import Recording
from policies.trajectory import derive_seed

_MAX_RESTARTS = 3
"""Times that an engine may die over one proposal."""
_SHOWN = 4
"""Interfaces of earlier windows that a prompt has at most."""

Check = Callable[[Interface], str | None]
"""Why an interface may not be shown, in one sentence; None where it may."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How proposals are sampled.

    `constrained` restricts sampling to the JSON schema of a proposal, where the engine has grammars; elsewhere a text
    that is no interface is sampled again, `retries` times at most. `max_tokens` bounds a proposal, `context` (tokens)
    prompt and proposal together. A proposal that `extends` is shown with what is in force, where both are allowed
    together, and else, as one that does not, in its place.
    """

    context: int
    max_tokens: int = 512
    temperature: float = 1.0
    constrained: bool = True
    retries: int = 2
    extends: bool = False


class LLMCurator(Curator):
    """Proposes what a language model writes, through an engine. It sees the profile, the incumbent, what was `tried`.

    `connect()` gives the engine, anew for each proposal; `policy` names the adapter that writes, or the base. `check`
    is the leak guard's.
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
    ) -> None:
        self.kind = kind
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
        for most in range(_SHOWN, -1, -1):
            tried = best_and_worst(self.tried, most)
            messages = messages_for(
                profile, incumbent=incumbent, before=self._before, tried=tried, extends=self._writing.extends
            )
            prompt = self._form.chat(messages)
            if len(prompt) + self._writing.max_tokens <= self._writing.context:
                break
        return prompt

    def get_state(self) -> dict[str, JSON]:
        return {**super().get_state(), "before": interface_to_dict(self._before), "last": interface_to_dict(self._last)}

    def set_state(self, state: Mapping[str, JSON]) -> None:
        super().set_state(state)
        self._before, self._last = interface_from_dict(state["before"]), interface_from_dict(state["last"])

    async def _write(self, engine: Engine, prompt: tuple[int, ...], incumbent: Interface, seed: int) -> Proposal:
        writing = self._writing
        found = Proposal(incumbent, rejection=f"proposal: its prompt of {len(prompt)} tokens leaves it no room.")
        for attempt in range(1 if writing.constrained else 1 + writing.retries):
            request = GenRequest(
                prompt_ids=prompt,
                max_tokens=min(writing.max_tokens, writing.context - len(prompt)),
                temperature=writing.temperature,
                seed=derive_seed(seed, attempt),
                stop_token_ids=self._form.stop_token_ids,
                policy=self._policy,
                json_schema=PROPOSAL_SCHEMA if writing.constrained else None,
            )
            try:
                result, logprobs = await _sampled(engine, request)
            except BadRequest as error:
                return Proposal(incumbent, rejection=f"proposal: the engine refuses the request ({error}).")
            found, readable = self._read(request, result, logprobs, incumbent)
            if readable:
                break
        return found

    def _read(
        self, request: GenRequest, result: GenResult, sampled_logprobs_T: tuple[float, ...], incumbent: Interface
    ) -> tuple[Proposal, bool]:
        """The proposal, and whether it was an interface at all."""
        record = Recording()
        record.read(request.prompt_ids)
        record.write(result.token_ids_T, sampled_logprobs_T, result.versions_T)
        sample = record.sample(request.seed)
        try:
            if result.finish is Finish.LENGTH:
                raise UserError(f"proposal: it did not end within {request.max_tokens} tokens.")
            interface = read_proposal(self._form.text(result.token_ids_T))
        except UserError as error:
            return Proposal(incumbent, rejection=str(error), sample=sample), False
        rejection = self._check(interface)
        if rejection is None and self._writing.extends:
            more = incumbent.with_more(interface)
            interface = more if self._check(more) is None else interface
        return Proposal(incumbent if rejection else interface, rejection=rejection, sample=sample), True


class CoevolvedCurator(LLMCurator):
    """The same, and its model learns from the rewards of its proposals."""

    learns = True


async def _sampled(engine: Engine, request: GenRequest) -> tuple[GenResult, tuple[float, ...]]:
    """The result, and the log-probs (nats) that the policy itself gives its tokens, whatever a grammar left of them."""
    for left in range(_MAX_RESTARTS, -1, -1):
        try:
            result = await engine.generate(request)
            if not result.masked:
                return result, result.sampled_logprobs_T
            whole = request.prompt_ids + result.token_ids_T
            return result, await engine.score(whole, len(request.prompt_ids), policy=request.policy)
        except EngineDead:
            if not left:
                raise
            await engine.restart()
    raise AssertionError("the last try returns or raises")
