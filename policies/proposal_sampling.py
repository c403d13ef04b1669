"""JSON documents that a language model writes: sampled through an engine, kept as tokens, and read as hostile text."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from envs.dialogue import Message
from envs.errors import UserError
from policies.engine import BadRequest, Finish, GenRequest, GenResult, Sampler
from policies.prompting import ChatFormat
from policies.proposer import Proposal
from policies.rollouts import EngineRestarter
from policies.trajectory import Recording, derive_seed

T = TypeVar("T")
Sampling = Callable[[GenRequest], Awaitable[tuple[GenResult, tuple[float, ...]]]]


@dataclass(frozen=True, slots=True)
class Writing:
    """How documents are sampled.

    `constrained` restricts sampling to the JSON schema of a document, if the engine has grammars; otherwise an
    unreadable text is sampled again, up to `retries` times. `max_tokens` bounds a document, `context` (tokens) prompt
    and document together.
    """

    context: int
    max_tokens: int = 512
    constrained: bool = True
    retries: int = 2

    @property
    def scored(self) -> int:
        """Tokens of the context that stay free, since a constrained document is scored afterwards."""
        return int(self.constrained)


@dataclass(frozen=True, slots=True)
class ProposalSampler(Generic[T]):
    """Samples documents of one kind.

    `connect` returns the engine, `policy` is the adapter that writes. `read` returns a document's value or raises
    `UserError`; `check` returns why a value is rejected, or None. `name` is the document's name in rejections.
    """

    connect: Callable[[], Sampler]
    form: ChatFormat
    writing: Writing
    policy: str
    name: str
    schema: Mapping[str, Any]
    read: Callable[[str], T]
    check: Callable[[T], str | None]

    async def sample(
        self, messages_with: Callable[[int], Sequence[Message]], most: int, *, n: int, seed: int
    ) -> tuple[Proposal[T], ...]:
        """`n` documents to one prompt: that of `messages_with(most)`, or with fewer examples if there is no room.

        The same arguments give the same tokens. Raises `EngineDead` if the engine keeps dying.
        """
        for shown in range(most, -1, -1):
            prompt = self.form.chat(messages_with(shown))
            if len(prompt) + self.writing.max_tokens + self.writing.scored <= self.writing.context:
                break
        engine = self.connect()
        restarter = EngineRestarter(engine, "document")

        async def sampled(request: GenRequest) -> tuple[GenResult, tuple[float, ...]]:
            return await restarter.until_done(lambda: _sampled(engine, request))

        written = (self._document(sampled, prompt, derive_seed(seed, place)) for place in range(n))
        return tuple(
            proposal if proposal.value is None else replace(proposal, rejection=self.check(proposal.value))
            for proposal in await asyncio.gather(*written)
        )

    async def _document(self, sampled: Sampling, prompt: tuple[int, ...], seed: int) -> Proposal[T]:
        writing = self.writing
        room = writing.context - len(prompt) - writing.scored
        document: Proposal[T] = Proposal(None, f"{self.name}: its prompt of {len(prompt)} tokens leaves it no room.")
        if room < 1:
            return document
        for attempt in range(1 if writing.constrained else 1 + writing.retries):
            request = GenRequest(
                prompt_ids=prompt,
                max_tokens=min(writing.max_tokens, room),
                temperature=1.0,
                seed=derive_seed(seed, attempt),
                stop_token_ids=self.form.stop_token_ids,
                policy=self.policy,
                json_schema=self.schema if writing.constrained else None,
            )
            try:
                result, logprobs = await sampled(request)
            except BadRequest as error:
                return Proposal(None, f"{self.name}: the engine refuses the request ({error}).")
            document = self._read(request, result, logprobs)
            if document.value is not None:
                break
        return document

    def _read(self, request: GenRequest, result: GenResult, sampled_logprobs_T: tuple[float, ...]) -> Proposal[T]:
        record = Recording()
        record.read(request.prompt_ids)
        record.write(result.token_ids_T, sampled_logprobs_T, result.versions_T)
        sample = record.sample(request.seed)
        try:
            if result.finish is Finish.LENGTH:
                raise UserError(f"{self.name}: it did not end within {request.max_tokens} tokens.")
            return Proposal(self.read(self.form.text(result.token_ids_T)), sample=sample)
        except UserError as error:
            return Proposal(None, str(error), sample)


def both_ends(ordered: Sequence[T], most: int) -> list[T]:
    """At most `most` items, in their order: as many from either end, with the odd one from the start."""
    if len(ordered) <= most:
        return list(ordered)
    last = most // 2
    return [*ordered[: most - last], *ordered[len(ordered) - last :]]


def outermost_object(text: str, *, name: str) -> str:
    """The outermost JSON object of an answer, without the text around it. Raises `UserError` if there is none."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        raise UserError(f"{name}: there is no JSON object in it.")
    return text[begin : end + 1]


async def _sampled(engine: Sampler, request: GenRequest) -> tuple[GenResult, tuple[float, ...]]:
    """The result, and the policy's own log-probs (nats) of its tokens, even if a grammar restricted the sampling."""
    result = await engine.generate(request)
    if not result.masked:
        return result, result.sampled_logprobs_T
    whole = request.prompt_ids + result.token_ids_T
    return result, await engine.score(whole, len(request.prompt_ids), policy=request.policy)
