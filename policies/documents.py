"""JSON documents that a language model writes: sampled through an engine, kept as tokens, and read as hostile text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from envs.dialogue import Message
from envs.errors import UserError
from policies.engine import BadRequest, Engine, EngineDead, Finish, GenRequest, GenResult
from policies.prompting import ChatFormat
from policies.sample import Recording, Sample
from policies.trajectory import derive_seed

T = TypeVar("T")

_MAX_RESTARTS = 3
"""Times that an engine may die over one document."""


@dataclass(frozen=True, slots=True)
class Writing:
    """How documents are sampled.

    `constrained` restricts sampling to the JSON schema of a document, where the engine has grammars; elsewhere a text
    that cannot be read is sampled again, `retries` times at most. `max_tokens` bounds a document, `context` (tokens)
    prompt and document together.
    """

    context: int
    max_tokens: int = 512
    temperature: float = 1.0
    constrained: bool = True
    retries: int = 2


@dataclass(frozen=True, slots=True)
class Document(Generic[T]):
    """What was written: a `value`, or the reason why it is none. `sample` is there where anything was sampled."""

    value: T | None
    rejection: str | None = None
    sample: Sample | None = None


async def write_document(
    engine: Engine,
    form: ChatFormat,
    writing: Writing,
    prompt: tuple[int, ...],
    *,
    read: Callable[[str], T],
    schema: Mapping[str, Any],
    policy: str,
    seed: int,
    name: str,
) -> Document[T]:
    """Samples a document. `read` gives its value or raises `UserError`; `name` is what reasons call it.

    The same arguments give the same tokens. Raises `EngineDead` where the engine keeps dying.
    """
    found: Document[T] = Document(None, f"{name}: its prompt of {len(prompt)} tokens leaves it no room.")
    room = writing.context - len(prompt) - _scored(writing)
    if room < 1:
        return found
    for attempt in range(1 if writing.constrained else 1 + writing.retries):
        request = GenRequest(
            prompt_ids=prompt,
            max_tokens=min(writing.max_tokens, room),
            temperature=writing.temperature,
            seed=derive_seed(seed, attempt),
            stop_token_ids=form.stop_token_ids,
            policy=policy,
            json_schema=schema if writing.constrained else None,
        )
        try:
            result, logprobs = await _sampled(engine, request)
        except BadRequest as error:
            return Document(None, f"{name}: the engine refuses the request ({error}).")
        found = _read(request, result, logprobs, form, read, name)
        if found.value is not None:
            break
    return found


def fitting_prompt(
    form: ChatFormat, writing: Writing, messages_with: Callable[[int], Sequence[Message]], most: int
) -> tuple[int, ...]:
    """The prompt of `messages_with(n)`; n examples are `most`, or as many as leave the document its room."""
    for shown in range(most, -1, -1):
        prompt = form.chat(messages_with(shown))
        if len(prompt) + writing.max_tokens + _scored(writing) <= writing.context:
            break
    return prompt


def _scored(writing: Writing) -> int:
    """Tokens of the context that stay free for a document that a grammar held, and that is scored afterwards."""
    return int(writing.constrained)


def both_ends(ordered: Sequence[T], most: int) -> list[T]:
    """At most `most` of these, in their order: as many from either end, the first ones in doubt."""
    if len(ordered) <= most:
        return list(ordered)
    last = most // 2
    return [*ordered[: most - last], *ordered[len(ordered) - last :]]


def outermost_object(text: str, *, name: str) -> str:
    """The outermost JSON object of an answer; the text around it is ignored. Raises `UserError` where there is none."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        raise UserError(f"{name}: there is no JSON object in it.")
    return text[begin : end + 1]


def _read(
    request: GenRequest,
    result: GenResult,
    sampled_logprobs_T: tuple[float, ...],
    form: ChatFormat,
    read: Callable[[str], T],
    name: str,
) -> Document[T]:
    record = Recording()
    record.read(request.prompt_ids)
    record.write(result.token_ids_T, sampled_logprobs_T, result.versions_T)
    sample = record.sample(request.seed)
    try:
        if result.finish is Finish.LENGTH:
            raise UserError(f"{name}: it did not end within {request.max_tokens} tokens.")
        return Document(read(form.text(result.token_ids_T)), sample=sample)
    except UserError as error:
        return Document(None, str(error), sample)


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
