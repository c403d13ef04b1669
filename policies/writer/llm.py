"""`LLMWriter`: a language model that writes task specifications, frozen or learning.

Its output is hostile input: it is read as JSON under the grammar of the source, composed and executed there, and
otherwise rejected. Whatever it writes, training goes on with the tasks that there are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from envs.dialogue import Message
from envs.profile import FailureProfile
from envs.specifications import Specification, Writable
from policies.documents import Writing, fitting_prompt, outermost_object, write_document
from policies.engine import BASE, Engine
from policies.prompting import ChatFormat
from policies.trajectory import derive_seed
from policies.writer.base import Check, Draft, Known, TaskWriter
from policies.writer.specification_text import messages_for, telling

_SHOWN = 6
"""Specifications of earlier windows that a prompt has at most."""


class LLMWriter(TaskWriter):
    """Writes what a language model writes, through an engine. It sees the profile, and success by specification.

    `connect()` gives the engine, anew for each window; `policy` names the adapter that writes, or the base.
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
        self._connect = connect
        self._form = form
        self._writing = writing
        self._source = source
        self._check = check
        self._policy = policy

    async def write(self, profile: FailureProfile, *, known: Sequence[Known], n: int, seed: int) -> tuple[Draft, ...]:
        """`n` drafts, sampled side by side. Raises `EngineDead` where the engine keeps dying."""
        prompt = self._prompt(profile, known)
        engine = self._connect()
        return tuple(
            await asyncio.gather(*(self._write(engine, prompt, derive_seed(seed, place)) for place in range(n)))
        )

    def _prompt(self, profile: FailureProfile, known: Sequence[Known]) -> tuple[int, ...]:
        """The prompt, with as many specifications of earlier windows as leave a whole one its room."""

        def messages_with(most: int) -> tuple[Message, ...]:
            return messages_for(profile, grammar=self._source.specification_help, known=telling(known, most))

        return fitting_prompt(self._form, self._writing, messages_with, _SHOWN)

    async def _write(self, engine: Engine, prompt: tuple[int, ...], seed: int) -> Draft:
        found = await write_document(
            engine,
            self._form,
            self._writing,
            prompt,
            read=self._read,
            schema=self._source.specification_schema,
            policy=self._policy,
            seed=seed,
            name="specification",
        )
        if found.value is None:
            return Draft(None, found.rejection, found.sample)
        return Draft(found.value, self._check(found.value), found.sample)

    def _read(self, text: str) -> Specification:
        return self._source.read(outermost_object(text, name="specification"))


class LearningWriter(LLMWriter):
    """The same, and its model learns from the rewards of its specifications."""

    learns = True
