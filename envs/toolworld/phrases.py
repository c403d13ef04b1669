"""Puts requests into words: paraphrases from `phrases.toml`, filled with a beat's slots.

The varied register makes them longer and more varied by the grammar in `register.toml`. It adds text around a request,
never into it; what it adds names no value and requests nothing.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from envs.toolworld.scene import Beat
from envs.toolworld.words import read_table

_CONNECTORS = ("Then {}", "After that, {}", "Also, {}", "Next, {}")


@dataclass(frozen=True, slots=True)
class Phrases:
    """The paraphrases of one request; `without` has, by slot, the phrases that leave the slot out."""

    ask: Sequence[str]
    without: Mapping[str, Sequence[str]] = field(default_factory=dict)


@cache
def phrases(table: str = "phrases") -> Mapping[str, Phrases]:
    """The paraphrases of every request by intent; those about earlier results are in the table "referring"."""
    return {
        f"{scene}.{name}": Phrases(**entry)
        for scene, entries in read_table(table).items()
        if scene not in ("clause", "supply")
        for name, entry in entries.items()
    }


def phrases_of(beat: Beat) -> Phrases:
    """The paraphrases of a beat, also if it refers to earlier results."""
    return phrases().get(beat.intent) or phrases("referring")[beat.intent]


def omittable(beat: Beat) -> tuple[str, ...]:
    """The slots of a beat that a user can leave out."""
    return tuple(phrases_of(beat).without)


def request(rng: random.Random, beat: Beat, *, first: bool, without: str | None = None, varied: bool = False) -> str:
    """The text of a request, which may be the `first` of its turn, leave a slot out, or use the varied register."""
    known = phrases_of(beat)
    text = rng.choice(known.ask if without is None else known.without[without]).format_map(beat.slots)
    if varied:
        text = worded(rng, text)
    if not first:
        text = rng.choice(_register()["connecting"] if varied else _CONNECTORS).format(lowered(text))
    if beat.clause is None:
        return text
    clause = rng.choice(read_table("phrases")["clause"][beat.clause]).format_map(beat.slots)
    return f"{clause} {text}" if first and rng.random() < 0.5 else f"{text} {clause}"


def supply(rng: random.Random, beat: Beat, slot: str, *, varied: bool = False) -> str:
    """The user's text that supplies the value that was left out."""
    text: str = rng.choice(read_table("phrases")["supply"][slot]).format_map(beat.slots)
    if varied and rng.random() < _RECALLED:
        return f"{_one(rng, _register()['recalling'])} {text}"  # an excuse
    return text


_SYMBOL = re.compile(r"<(\w+)>")
_SENTENCE_ENDS = re.compile(r"[.?!] ")
_KEPT_CAPITALS = frozenset({"I", "Twitter"})

_WORDED = 0.65
"""Probability of polite or long wording. The following constants are such probabilities too."""
_GREETED, _RESUMED, _RECALLED = 0.6, 0.25, 0.6
_CONTEXT = 0.45
_REASON = 0.25
_CLOSED = 0.2


def _register() -> Mapping[str, Any]:
    return read_table("register")


def expanded(text: str, choose: Callable[[Sequence[str]], str]) -> str:
    """The text with every name in angle brackets replaced by one of its texts, starting with a capital letter."""
    while symbol := _SYMBOL.search(text):
        text = text[: symbol.start()] + choose(_register()["parts"][symbol[1]]) + text[symbol.end() :]
    return text[:1].upper() + text[1:]


def lowered(text: str) -> str:
    """The text with its first letter as inside a sentence."""
    first = text.split(maxsplit=1)[0].rstrip(",'")
    return text if first in _KEPT_CAPITALS else text[0].lower() + text[1:]


def worded(rng: random.Random, text: str) -> str:
    """A request, perhaps put more politely or at greater length. Its own words do not change."""
    if rng.random() >= _WORDED or _SENTENCE_ENDS.search(text):
        return text
    order = text.removeprefix("Please ")
    order = order[:1].upper() + order[1:]
    if order.split(maxsplit=1)[0] in _register()["imperatives"].split() and order.endswith("."):
        form = rng.choice(_register()[rng.choice(("asking", "stating"))])
        return str(form.format(lowered(order).removesuffix(".")))
    if ":" in text:
        return text
    form = rng.choice(_register()["wondering" if text.endswith("?") else "remarking"])
    return str(form.format(lowered(text)))


def dressed(rng: random.Random, text: str, *, scene: str, opens: bool) -> str:
    """A turn with greetings, context and reasons around it; `opens` marks the first one of the dialogue."""
    book = _register()
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


def _one(rng: random.Random, texts: Sequence[str]) -> str:
    return expanded(rng.choice(texts), rng.choice)
