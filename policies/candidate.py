"""`EngineCandidate`: a model that answers an exam's items through an engine. Its answers stay as they were sampled."""

from collections.abc import Sequence

from envs.dialects import Dialect
from envs.dialogue import Message
from envs.exams import Conversation, Past, Said
from envs.task import ToolCall
from envs.text import map_texts
from policies.engine import Finish, GenRequest, Sampler
from policies.prompting import ChatFormat
from policies.solver import Budgets
from policies.trajectory import derive_seed


class EngineCandidate:
    """A policy of an engine for one item of an exam. The same seed gives the same answers.

    `said` has its answers, `asked` the last conversation, `prompt_tokens` the number of tokens that it read. Raises the
    engine's errors.
    """

    def __init__(
        self,
        engine: Sampler,
        form: ChatFormat,
        budgets: Budgets,
        *,
        seed: int,
        temperature: float = 0.0,
        top_p: float = 1.0,
    ) -> None:
        self._engine, self._form, self._budgets = engine, form, budgets
        self._seed, self._temperature, self._top_p = seed, temperature, top_p
        self.said: list[Said] = []
        self.asked: Conversation | None = None
        self.prompt_tokens = 0

    @property
    def dialect(self) -> Dialect:
        return self._form.dialect

    def asked_texts(self) -> list[tuple[str, str]]:
        """Role and text of each entry of the last conversation, for people to read."""
        entries = () if self.asked is None else self.asked.entries
        return [
            (entry.role, entry.content)
            if isinstance(entry, Message)
            else ("assistant", entry.text if isinstance(entry, Said) else _rendered(self._form, entry))
            for entry in entries
        ]

    async def answer(self, conversation: Conversation) -> Said:
        prompt = conversation_prompt(self._form, conversation)
        self.asked = conversation
        room = self._budgets.room(len(prompt))
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
            )
        )
        end = str(self._budgets.cut(room)) if result.finish is Finish.LENGTH else "stop"
        return Said(self._form.text(result.token_ids_T), result.token_ids_T, end)


def conversation_prompt(form: ChatFormat, conversation: Conversation) -> tuple[int, ...]:
    """The prompt of the next answer.

    The candidate's earlier answers keep their tokens. Answers from the data are only text and calls: control tokens and
    markup in them are broken up, and the dialect renders the calls.
    """
    tokens: list[int] = []
    heard: list[Message] = []

    def read(messages: Sequence[Message]) -> tuple[int, ...]:
        if not tokens:
            return form.opening(messages, conversation.tools)
        return form.continuation(messages, tools=bool(conversation.tools))

    last = len(conversation.entries) - 1
    for place, entry in enumerate(conversation.entries):
        if isinstance(entry, Message):
            heard.append(entry)
            continue
        tokens += read(heard)
        heard = []
        if isinstance(entry, Said):
            tokens += entry.token_ids
        elif place == last and not entry.calls:
            return (*tokens, *form.tokens(f"{form.disarmed(entry.text)}\n"))
        else:
            tokens += form.completion(_rendered(form, entry))
    return (*tokens, *read(heard))


def _rendered(form: ChatFormat, past: Past) -> str:
    text = form.disarmed(past.text)
    calls = [ToolCall(form.disarmed(each.name), map_texts(dict(each.arguments), form.disarmed)) for each in past.calls]
    return "\n".join(filter(None, (text, form.dialect.render_calls(calls) if calls else "")))
