"""Control tokens: which texts a tokenizer, a chat template and a dialect give a meaning to, and how they lose it.

A file's content, a tool result, a user's message or a tool document can spell a control token. Tokenised as it stands,
it would end the message that it is in and begin another one.
"""

from __future__ import annotations

import re
from typing import Any

from envs.dialects import Dialect
from envs.text import Marks

_BRACKETED = re.compile(r"<.+>|\[.+\]")


class ControlTokens:
    """The control tokens of a tokenizer with its template, and the markup of a dialect.

    Of the tokenizer's added vocabulary these are the special tokens, those in brackets, and those that stand in the
    template or in the dialect's markup; `ids` are their token ids. Added words and runs of blanks stay what they are.
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
            # Such a token is found in the normalised text, where other spellings of it look the same.
            self._normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
        if self._normalizer is not None:
            texts |= {self._normalizer.normalize_str(text) for text in texts}
        self._marks = Marks(texts, own_words=dialect.own_words)

    def broken_up(self, text: str) -> str:
        """The text with its control tokens broken up by blanks: what a model reads of it is only text."""
        if self._normalizer is not None:
            normal = self._normalizer.normalize_str(text)
            if self._marks.stand_in(normal):
                text = normal
        return self._marks.broken_up(text)
