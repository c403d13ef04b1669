"""From messages to token ids and back, by the model's chat template. Nothing is tokenised twice.

The opening of a dialogue is rendered whole. Later only the environment's messages are rendered and tokenised, and
appended to the sampled tokens. Content that spells a control token, which would end its message and begin another one,
loses that meaning.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

from envs.dialects import Dialect
from envs.dialogue import Message
from envs.errors import UserError
from envs.task import JSON, ToolDoc
from envs.text import Marks, map_texts
from policies.chat_template import render_chat
from policies.models import read_json

_QUESTION, _ANSWER = "stand-in question", "stand-in answer"
"""An exchange that shows what a template writes behind an answer."""

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
        known = "\n".join([str(tokenizer.chat_template), *dialect.markup])
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

    def __init__(self, tokenizer: Any, dialect: Dialect, *, name: str, stop_token_ids: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._name = name
        self.dialect = dialect
        if not tokenizer.chat_template:
            raise UserError(f"model: {name} has no chat template; a model that was trained to chat is needed.")
        self._control = ControlTokens(tokenizer, dialect)
        # All dialogues of a group have the same opening.
        self._opening_tokens = lru_cache(maxsize=64)(self.tokens)
        self._exchange = [{"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}]
        _, _, after = self._render(self._exchange).partition(_ANSWER)
        ending = self.tokens(after)
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
        return cls(tokenizer, dialect, name=str(folder), stop_token_ids=stops)

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolDoc]) -> tuple[int, ...]:
        """The prompt of the first completion: tools, the interface's additions, and the first user turn."""
        chat = [self._as_dict(message) for message in messages]
        documents = [self._document(tool) for tool in tools]
        if not self.dialect.tools_in_system:
            return self._opening_tokens(self._render(chat, tools=documents, add_generation_prompt=True))
        shown = [replace(tool, document=document) for tool, document in zip(tools, documents, strict=True)]
        system = self.dialect.render_tools(shown)
        if chat and chat[0]["role"] == "system":
            system = f"{system}\n{chat.pop(0)['content']}"
        chat.insert(0, {"role": "system", "content": system})
        return self._opening_tokens(self._render(chat, add_generation_prompt=True))

    def chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The prompt of an answer to these messages, without tools."""
        return self.tokens(self._render([self._as_dict(message) for message in messages], add_generation_prompt=True))

    def continuation(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """The tokens between a sampled stop token and the next completion: tool results or the next user turn."""
        chat = [*self._exchange, *map(self._as_dict, messages)]
        _, _, after = self._render(chat, add_generation_prompt=True).partition(_ANSWER)
        end, *rest = self.tokens(after)
        assert end == self._end, "an answer ends as it always does"
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
            return render_chat(template, {"add_generation_prompt": add_generation_prompt, **values})
        # A template is a program that comes with a model; an unexpected tool can make it raise anything.
        except Exception as error:
            raise UserError(
                f"model: the chat template of {self._name} refuses a message or a tool ({error!s:.200})."
            ) from error

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
