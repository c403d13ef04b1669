"""`LLMWriter`: a language model that writes task specifications, frozen or learning.

Its output is hostile input: it is read as JSON under the grammar of the source, composed and executed there, and
otherwise rejected. In any case training continues with the tasks that exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envs.dialogue import Message
from envs.profile import FailureProfile
from envs.specifications import Writable
from policies.documents import DocumentSampler, Writing, outermost_object
from policies.engine import BASE, Engine
from policies.prompting import ChatFormat
from policies.writer.base import Check, Draft, Known, TaskWriter
from policies.writer.specification_text import messages_for, most_informative

_SHOWN = 6
"""Largest number of specifications of earlier windows in a prompt."""


class LLMWriter(TaskWriter):
    """Writes what a language model writes. It reads the profile, and success by specification.

    Args:
        connect: Returns the engine, for each call of `write`.
        form: The model's chat format.
        writing: How specifications are sampled.
        source: The task source.
        check: Finds the reason to reject a specification.
        kind: The writer's kind.
        policy: The adapter that writes, or the base.
    """

    is_model = True
    learns = False

    def __init__(
        self,
        connect: Callable[[], Engine],
        form: ChatFormat,
        writing: Writing,
        *,
        source: Writable,
        check: Check,
        kind: str = "llm",
        policy: str = BASE,
    ) -> None:
        self.kind = kind
        self._source = source
        self._check = check
        name, schema = "specification", source.specification_schema
        self._sampler = DocumentSampler(
            connect, form, writing, policy, name, schema, lambda text: source.read(outermost_object(text, name=name))
        )

    async def write(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> tuple[Draft, ...]:
        """`n` drafts, sampled concurrently. Raises `EngineDead` if the engine keeps dying."""

        def messages_with(most: int) -> tuple[Message, ...]:
            shown = most_informative(known, most)
            return messages_for(profile, grammar=self._source.specification_help, known=shown)

        return tuple(
            Draft(each.value, each.rejection if each.value is None else self._check(each.value), each.sample)
            for each in await self._sampler.sample(messages_with, _SHOWN, n=n, seed=seed)
        )


class LearningWriter(LLMWriter):
    """An `LLMWriter` whose model learns from the rewards of its specifications."""

    learns = True
