"""A replica's latest answers as tokens. Clients send an answer back as text, which may have other tokens."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from envs.text import valid_text

_DATA = "data: {"
"""The beginning of a chunk of a stream that is not the end mark."""


class Prefix:
    """The tokens of a prompt as far as it is put together, with a running hash of them."""

    def __init__(self, token_ids: Sequence[int] = ()) -> None:
        self.token_ids: list[int] = []
        self._hash = hashlib.sha256()
        self.add(token_ids)

    def add(self, token_ids: Sequence[int]) -> None:
        """Puts more tokens behind it."""
        self.token_ids.extend(token_ids)
        self._hash.update(array("l", token_ids).tobytes())

    def key(self, text: str) -> bytes:
        """What an answer of this text to this prompt is known by."""
        whole = self._hash.copy()
        whole.update(text.encode("utf-8", "surrogatepass"))
        return whole.digest()


class Answers:
    """The newest `most` answers, each by the prompt that it was given to and the text that it is."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, array[int]] = OrderedDict()

    def keep(self, prompt: Sequence[int], text: str, token_ids: Sequence[int]) -> None:
        """Remembers an answer, and forgets the oldest where there are too many."""
        key = Prefix(prompt).key(text)
        self._kept[key] = array("i", token_ids)
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def find(self, prompt: Prefix, text: str) -> tuple[int, ...] | None:
        """The tokens of the answer that was given to this prompt and is this text, if it is still known."""
        found = self._kept.get(prompt.key(text))
        return None if found is None else tuple(found)


@dataclass
class Answer:
    """One answer while it comes in."""

    content: str = ""
    calls: dict[int, list[str]] = field(default_factory=dict)
    token_ids: list[int] = field(default_factory=list)

    def add(self, part: Mapping[str, Any], token_ids: Sequence[int] | None) -> None:
        """Takes in a message, or what a stream adds to one."""
        self.content += part.get("content") or ""
        for place, call in enumerate(part.get("tool_calls") or ()):
            entry = self.calls.setdefault(call.get("index", place), ["", ""])
            for index, key in enumerate(("name", "arguments")):
                entry[index] += (call.get("function") or {}).get(key) or ""
        self.token_ids += token_ids or ()

    def message(self) -> dict[str, Any]:
        """The message as a client sends it back."""
        calls = [
            {"function": {"name": name, "arguments": arguments}} for _, (name, arguments) in sorted(self.calls.items())
        ]
        return {"role": "assistant", "content": self.content, "tool_calls": calls}


async def listened_to(
    said: AsyncGenerator[Any, None], keep: Callable[[Answer], None], *, show_tokens: bool
) -> AsyncGenerator[Any, None]:
    """Passes on the answers of an engine, in parts or whole, and each answer's tokens to `keep` when it has ended.

    The engine must have been asked for tokens. Clients see them only with `show_tokens`.
    """
    answers: dict[int, Answer] = {}

    def chunk(text: Any) -> Any:
        if not isinstance(text, str) or not text.startswith(_DATA):
            return text
        document = json.loads(text.removeprefix("data: "))
        for choice in document.get("choices") or ():
            answer = answers.setdefault(choice.get("index", 0), Answer())
            answer.add(choice.get("delta") or {}, choice.get("token_ids"))
            if not show_tokens:
                choice.pop("token_ids", None)
        if show_tokens:
            return text
        document.pop("prompt_token_ids", None)
        return valid_text(f"data: {json.dumps(document, ensure_ascii=False)}\n\n")

    async with aclosing(said):  # a client that disconnects ends its request in the engine
        async for part in said:
            if isinstance(part, list):
                yield [chunk(each) for each in part]
            elif isinstance(part, str):
                yield chunk(part)
            else:
                for choice in getattr(part, "choices", ()):
                    _make_valid(choice.message)
                    answer = answers.setdefault(choice.index, Answer())
                    answer.add(choice.message.model_dump(), choice.token_ids)
                    if not show_tokens:
                        choice.token_ids = None
                if not show_tokens and hasattr(part, "prompt_token_ids"):
                    part.prompt_token_ids = None
                yield part
    for answer in answers.values():
        keep(answer)


def _make_valid(message: Any) -> None:
    """Makes the texts of an answer valid Unicode: the parsers of calls decode what JSON spells, halves of pairs too."""
    message.content = valid_text(message.content) if message.content else message.content
    for call in message.tool_calls or ():
        call.function.name = valid_text(call.function.name)
        call.function.arguments = valid_text(call.function.arguments)
