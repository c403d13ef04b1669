"""`EngineCandidate`: a model that sits an exam, through an engine. What it said stays token by token as it was."""

from __future__ import annotations

from collections.abc import Sequence

from envs.dialects import Dialect
from envs.dialogue import Message
from envs.exams import Conversation, Past, Said
from envs.task import ToolCall
from envs.text import map_texts
from policies.engine import BASE, Engine, Finish, GenRequest
from policies.prompting import ChatFormat
from policies.solver import Budgets
from policies.trajectory import derive_seed


class EngineCandidate:
    """A policy of an engine for one item of an exam. The same seed gives the same answers.

    `said` has its answers so far, `asked` what it was to answer last, and `prompt_tokens` what it read in all. Raises
    the engine's own errors.
    """

    def __init__(
        self,
        engine: Engine,
        form: ChatFormat,
        budgets: Budgets,
        *,
        seed: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
        policy: str = BASE,
    ) -> None:
        self._engine, self._form, self._budgets = engine, form, budgets
        self._seed, self._temperature, self._top_p, self._policy = seed, temperature, top_p, policy
        self.said: list[Said] = []
        self.asked: Conversation | None = None
        self.prompt_tokens = 0

    @property
    def dialect(self) -> Dialect:
        return self._form.dialect

    def asked_texts(self) -> list[tuple[str, str]]:
        """What it was to answer last, as role and text of each entry, for people to read."""
        found = []
        for entry in () if self.asked is None else self.asked.entries:
            match entry:
                case Message():
                    found.append((entry.role, entry.content))
                case Said():
                    found.append(("assistant", entry.text))
                case Past():
                    found.append(("assistant", _written(self._form, entry)))
        return found

    async def answer(self, conversation: Conversation) -> Said:
        prompt = prompt_of(self._form, conversation)
        self.asked = conversation
        room = min(self._budgets.response, self._budgets.context - len(prompt))
        if room < 1 or len(prompt) > self._budgets.prompt:
            said = Said("", end="context")
        else:
            said = await self._sample(prompt, room)
            self.prompt_tokens += len(prompt)
        self.said.append(said)
        return said

    async def _sample(self, prompt: tuple[int, ...], room: int) -> Said:
        result = await self._engine.generate(
            GenRequest(
                prompt_ids=prompt,
                max_tokens=room,
                temperature=self._temperature,
                top_p=self._top_p,
                seed=derive_seed(self._seed, len(self.said)),
                stop_token_ids=self._form.stop_token_ids,
                policy=self._policy,
            )
        )
        end = "stop"
        if result.finish is Finish.LENGTH:
            end = "response" if room == self._budgets.response else "context"
        return Said(self._form.text(result.token_ids_T), result.token_ids_T, end)


def prompt_of(form: ChatFormat, conversation: Conversation) -> tuple[int, ...]:
    """The prompt of the next answer.

    Earlier answers of the candidate are its own tokens. Those of the data are only text and calls: control tokens and
    markup in them are broken up, and the dialect writes the calls.
    """
    tokens: list[int] = []
    heard: list[Message] = []
    last = len(conversation.entries) - 1
    for place, entry in enumerate(conversation.entries):
        if isinstance(entry, Message):
            heard.append(entry)
            continue
        tokens += _heard(form, conversation, heard, begun=bool(tokens))
        heard = []
        if isinstance(entry, Said):
            tokens += entry.token_ids
        elif place == last and not entry.calls:
            return (*tokens, *form.tokens(f"{form.disarmed(entry.text)}\n"))
        else:
            tokens += form.completion(_written(form, entry))
    return (*tokens, *_heard(form, conversation, heard, begun=bool(tokens)))


def _heard(form: ChatFormat, conversation: Conversation, heard: Sequence[Message], *, begun: bool) -> tuple[int, ...]:
    return form.continuation(heard) if begun else form.opening(heard, conversation.tools)


def _written(form: ChatFormat, past: Past) -> str:
    text = form.disarmed(past.text)
    calls = [ToolCall(form.disarmed(each.name), map_texts(dict(each.arguments), form.disarmed)) for each in past.calls]
    return "\n".join(filter(None, (text, form.dialect.render_calls(calls) if calls else "")))
