"""The varied register: requests in longer and more varied language, from the grammar in `register.toml`.

What is added is put around a request and never into it. It names no value and asks for nothing.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_SYMBOL = re.compile(r"<(\w+)>")
_SENTENCE_ENDS = re.compile(r"[.?!] ")
_KEPT_CAPITALS = frozenset({"I", "Twitter"})

_WORDED = 0.65
"""How often a request is worded politely or at length. The other numbers are such shares too."""
_GREETED, _RESUMED, _RECALLED = 0.6, 0.25, 0.6
_CONTEXT = 0.45
_REASON = 0.25
_CLOSED = 0.2


@cache
def grammar() -> Mapping[str, Any]:
    return tomllib.loads((Path(__file__).parent / "register.toml").read_text(encoding="utf-8"))


@cache
def _imperatives() -> frozenset[str]:
    return frozenset(grammar()["imperatives"].split())


def expanded(text: str, choose: Callable[[Sequence[str]], str]) -> str:
    """The text with every name in angle brackets replaced by one of its texts, beginning with a capital letter."""
    while found := _SYMBOL.search(text):
        text = text[: found.start()] + choose(grammar()["parts"][found[1]]) + text[found.end() :]
    return text[:1].upper() + text[1:]


def lowered(text: str) -> str:
    """The text as it stands inside a sentence."""
    first = text.split(maxsplit=1)[0].rstrip(",'")
    return text if first in _KEPT_CAPITALS else text[0].lower() + text[1:]


def worded(rng: random.Random, text: str) -> str:
    """A request, perhaps put more politely or at greater length. Its own words stay as they are."""
    if rng.random() >= _WORDED or _SENTENCE_ENDS.search(text):
        return text
    order = text.removeprefix("Please ")
    order = order[:1].upper() + order[1:]
    if order.split(maxsplit=1)[0] in _imperatives() and order.endswith("."):
        form = rng.choice(grammar()[rng.choice(("asking", "stating"))])
        return str(form.format(lowered(order).removesuffix(".")))
    if ":" in text:
        return text
    form = rng.choice(grammar()["wondering" if text.endswith("?") else "remarking"])
    return str(form.format(lowered(text)))


def connected(rng: random.Random, text: str) -> str:
    """A request that follows another one in the same turn."""
    return str(rng.choice(grammar()["connecting"]).format(lowered(text)))


def dressed(rng: random.Random, text: str, *, scene: str, opens: bool) -> str:
    """A turn with what a user says around it; `opens` says that it is the first one of the dialogue."""
    book = grammar()
    parts = [text]
    if rng.random() < _CONTEXT:
        parts.insert(0, _one(rng, book["context"][scene]))
    if rng.random() < (_GREETED if opens else _RESUMED):
        parts.insert(0, _one(rng, book["greeting" if opens else "resuming"]))
    if rng.random() < _REASON:
        parts.append(_one(rng, book["reason"]))
    if rng.random() < _CLOSED:
        parts.append(_one(rng, book["closing"]))
    return " ".join(parts)


def recalled(rng: random.Random, text: str) -> str:
    """What gives a value that was left out, perhaps with an excuse."""
    return f"{_one(rng, grammar()['recalling'])} {text}" if rng.random() < _RECALLED else text


def _one(rng: random.Random, texts: Sequence[str]) -> str:
    return expanded(rng.choice(texts), rng.choice)
