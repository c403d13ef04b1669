"""From messages to token ids and back, by the model's chat template. Nothing is tokenised twice.

The opening of a dialogue is rendered whole. Later only the environment's messages are rendered and tokenised, and
appended to the sampled tokens. Content that spells a control token, which would end its message and begin another one,
loses that meaning. A message that a template cannot render where it stands gets the nearest form that the template has.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby, takewhile
from pathlib import Path
from typing import Any, Self

from envs.dialects import Dialect
from envs.dialogue import Message
from envs.errors import UserError
from envs.task import JSON, ToolDoc
from envs.text import Marks, map_texts
from policies.chat_template import DATE, render_chat
from policies.models import read_json

_ANSWER = "stand-in answer"
_EXCHANGE = ({"role": "user", "content": "stand-in question"}, {"role": "assistant", "content": _ANSWER})
"""An exchange that shows what a template writes around an answer."""
_DATE = "seal_ray_date"
"""The key of config.json with the date that the model's template is given."""

_PLAIN = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Tokenizer classes that are complete in tokenizer.json."""
_GENERATION = "generation_config.json"
_BRACKETED = re.compile(r"<.+>|\[.+\]")


class ControlTokens:
    """The control tokens of a tokenizer with its template, and the markup of a dialect.

    Of the tokenizer's added vocabulary these are the special tokens, those in brackets, and those in the template or in
    the dialect's markup, but not added words and runs of spaces. `ids` are their token ids.
    """

    def __init__(self, tokenizer: Any, dialect: Dialect) -> None:
        given = tokenizer.chat_template
        known = "\n".join(map(str, [*(given.values() if isinstance(given, dict) else [given]), *dialect.markup]))
        added = {
            place: token
            for place, token in tokenizer.added_tokens_decoder.items()
            if token.special
            or _BRACKETED.fullmatch(token.content)
            or (token.content.strip() and token.content in known)
        }
        self.ids = frozenset([*tokenizer.all_special_ids, *added])
        texts = {*map(str, tokenizer.all_special_tokens), *(token.content for token in added.values()), *dialect.markup}
        self._normalizer: Any = None
        if any(token.normalized for token in added.values()):
            # The tokenizer matches such a token in the normalised text, so that it has other spellings.
            self._normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
        if self._normalizer is not None:
            texts |= {self._normalizer.normalize_str(text) for text in texts}
        self._marks = Marks(texts, own_words=dialect.own_words)

    def broken_up(self, text: str) -> str:
        """The text with its control tokens broken up by spaces, so that a model reads only text."""
        if self._normalizer is not None:
            normal = self._normalizer.normalize_str(text)
            if self._marks.stand_in(normal):
                text = normal
        return self._marks.broken_up(text)


class ChatFormat:
    """A tokenizer with its chat template, and the dialect of tools and calls.

    `stop_token_ids` end a completion. Raises `UserError` if there is no template, or it refuses tool results, or does
    not end an answer with a special token.
    """

    def __init__(
        self, tokenizer: Any, dialect: Dialect, *, name: str, stop_token_ids: Sequence[int] = (), date: str = DATE
    ) -> None:
        self._tokenizer = tokenizer
        self._name = name
        self._date = date
        self.dialect = dialect
        if not tokenizer.chat_template:
            raise UserError(f"model: {name} has no chat template; a model that was trained to chat is needed.")
        self._control = ControlTokens(tokenizer, dialect)
        # All dialogues of a group have the same opening.
        self._opening_tokens = lru_cache(maxsize=64)(self.tokens)
        self._renders = lru_cache(maxsize=64)(self._try_roles)
        ending = self.tokens(self._render(_EXCHANGE, tools=self._tools(True)).partition(_ANSWER)[2])
        if not ending or ending[0] not in tokenizer.all_special_ids:
            raise UserError(f"model: the chat template of {name} does not end an answer with a special token.")
        self._end = ending[0]
        self.stop_token_ids = tuple(sorted({self._end, *stop_token_ids}))
        self.continuation((Message(dialect.result_role, "result"),))

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids of the control tokens, including the tokens that end a completion."""
        return self._control.ids

    @classmethod
    def load(cls, folder: Path, dialect: Dialect) -> Self:
        """The format of a Hugging Face model folder. Raises `UserError` if its tokenizer cannot be loaded."""
        try:
            tokenizer = _tokenizer(folder)
        except Exception as error:
            first, *_ = f"{type(error).__name__}: {error}".splitlines()
            raise UserError(f"model: the tokenizer of {folder} cannot be loaded ({first}).") from error
        stops = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        if (folder / _GENERATION).is_file():
            more = read_json(folder / _GENERATION).get("eos_token_id")
            stops += more if isinstance(more, list) else [] if more is None else [more]
        config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
        try:
            date = datetime.fromisoformat(config.get(_DATE, DATE))
        except (TypeError, ValueError):
            raise UserError(f"model: {_DATE} of {folder} is no date such as {DATE}: {config[_DATE]!r:.40}.") from None
        return cls(tokenizer, dialect, name=str(folder), stop_token_ids=stops, date=date.isoformat())

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolDoc]) -> tuple[int, ...]:
        """The prompt of the first completion: tools, the interface's additions, and the first user turn.

        If the template refuses an opening without a user's message, an empty one is added.
        """
        chat = [self._as_dict(message) for message in messages]
        documents = [self._document(tool) for tool in tools]
        if tools and self.dialect.tools_in_system:
            shown = [replace(tool, document=document) for tool, document in zip(tools, documents, strict=True)]
            system = self.dialect.render_tools(shown)
            if chat and chat[0]["role"] == "system":
                system = f"{system}\n{chat.pop(0)['content']}"
            chat.insert(0, {"role": "system", "content": system})
            documents = []
        given = documents or None
        chat = self._arranged(chat, tools=bool(tools))
        try:
            text = self._render(chat, tools=given, add_generation_prompt=True) if chat else self._before_answer(given)
        except UserError:
            if any(message["role"] != "system" for message in chat):
                raise
            text = self._render([*chat, {"role": "user", "content": ""}], tools=given, add_generation_prompt=True)
        return self._opening_tokens(text)

    def chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt of an answer to these messages, without tools."""
        return self.opening(messages, ())

    def continuation(self, messages: Sequence[Message], *, tools: bool = True) -> tuple[int, ...]:
        """The tokens between a sampled stop token and the next completion: tool results or the next user turn.

        Without messages, the next completion is another answer. `tools` says whether the opening has any: named
        templates differ in it.
        """
        chat = self._arranged([self._as_dict(message) for message in messages], tools=tools, begins=False)
        text = self._render([*_EXCHANGE, *chat], tools=self._tools(tools), add_generation_prompt=True)
        end, *rest = self.tokens(text.partition(_ANSWER)[2]) or (None,)
        if end != self._end:
            raise UserError(f"model: the chat template of {self._name} ends answers in more than one way.")
        return tuple(rest)

    def completion(self, text: str) -> tuple[int, ...]:
        """The tokens of a text as the model's completion, stop token included: for demonstrations."""
        return (*self.tokens(text), self._end)

    def disarmed(self, text: str) -> str:
        """Content with the control tokens and the dialect's markup in it broken up."""
        return self._control.broken_up(text)

    def tokens(self, text: str) -> tuple[int, ...]:
        """The tokens of a text, special ones included."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False))

    def text(self, token_ids: Sequence[int]) -> str:
        """The text of a completion, without its stop token."""
        ids = list(token_ids)
        if ids and ids[-1] in self.stop_token_ids:
            ids.pop()
        # Special tokens are kept: some dialects mark their calls with one.
        text = self._tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        assert isinstance(text, str)
        return text

    def _render(
        self,
        chat: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, JSON]] | None = None,
        add_generation_prompt: bool = False,
    ) -> str:
        try:
            template = self._tokenizer.get_chat_template(tools=tools)
            values = {"messages": chat, "tools": tools, "documents": None, **self._tokenizer.special_tokens_map}
            return render_chat(template, {"add_generation_prompt": add_generation_prompt, **values}, self._date)
        # A template is a program that comes with a model; an unexpected tool can make it raise anything.
        except Exception as error:
            raise UserError(
                f"model: the chat template of {self._name} refuses a message or a tool ({error!s:.200})."
            ) from error

    def _tools(self, given: bool) -> Sequence[Mapping[str, JSON]] | None:
        """The tools of a rendering that shows none: a list if the dialogue's tools are in the template's hands."""
        return [] if given and not self.dialect.tools_in_system else None

    def _before_answer(self, tools: Sequence[Mapping[str, JSON]] | None) -> str:
        """The text before an answer that comes first. Raises `UserError` if the template has no such dialogue."""
        before, *_ = self._render(_EXCHANGE[1:], tools=tools).partition(_ANSWER)
        answered, asked = (self._render(_EXCHANGE, tools=tools, add_generation_prompt=more) for more in (False, True))
        if not before.endswith(asked.removeprefix(answered)):
            raise UserError(f"model: the chat template of {self._name} begins with a user's message.")
        return before

    def _arranged(self, chat: list[dict[str, Any]], *, tools: bool, begins: bool = True) -> list[dict[str, Any]]:
        """The messages in roles and an order that the template renders.

        The first system messages are one. Where the template has no system message, it is the user's, and where it has
        no two messages of the user in succession, these are one.
        """
        lead = sum(1 for _ in takewhile(lambda message: message["role"] == "system", chat)) if begins else 0
        for place, message in enumerate(chat):
            before = () if place < lead else ("user", "assistant")
            if message["role"] == "system" and not self._renders((*before, "system", "user"), tools):
                message["role"] = "user"
        arranged: list[dict[str, Any]] = []
        for role, run in groupby(chat, key=lambda message: message["role"]):
            messages = list(run)
            are_first = role == "system" and lead and not arranged
            if len(messages) > 1 and (are_first or (role == "user" and not self._renders(("user", "user"), tools))):
                messages = [{**messages[0], "content": "\n\n".join(message["content"] for message in messages)}]
            arranged += messages
        return arranged

    def _try_roles(self, roles: Sequence[str], tools: bool) -> bool:
        """Whether the template renders a chat of these roles, with the text of each."""
        chat = [{"role": role, "content": f"stand-in {place}"} for place, role in enumerate(roles)]
        try:
            text = self._render(chat, tools=self._tools(tools))
        except UserError:
            return False
        return all(message["content"] in text for message in chat)

    def _as_dict(self, message: Message) -> dict[str, Any]:
        # A model can write control tokens to a file and read it; in a message they are only text.
        shown: dict[str, Any] = {"role": message.role, "content": self.disarmed(message.content)}
        if message.tools:
            shown["tools"] = [self._document(tool) for tool in message.tools]
        return shown

    def _document(self, tool: ToolDoc) -> dict[str, JSON]:
        document: dict[str, JSON] = map_texts(dict(tool.document), self.disarmed)
        return document


def _tokenizer(folder: Path) -> Any:
    config = folder / "tokenizer_config.json"
    is_complete = config.is_file() and (folder / "tokenizer.json").is_file()
    if is_complete and read_json(config).get("tokenizer_class") in _PLAIN:
        from transformers import PreTrainedTokenizerFast

        # The same tokens, without the seconds in which `AutoTokenizer` imports PyTorch and model code.
        return PreTrainedTokenizerFast.from_pretrained(folder)
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
