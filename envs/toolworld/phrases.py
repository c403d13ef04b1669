"""Putting requests into words: paraphrases from `phrases.toml`, filled with a beat's slots."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from envs.toolworld.register import connected, lowered, recalled, worded
from envs.toolworld.scene import Beat

_CONNECTORS = ("Then {}", "After that, {}", "Also, {}", "Next, {}")


@dataclass(frozen=True, slots=True)
class Phrases:
    """The paraphrases of one request; `without` holds, by slot, those that leave the slot out."""

    ask: Sequence[str]
    without: Mapping[str, Sequence[str]] = field(default_factory=dict)


@cache
def _book() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads((Path(__file__).parent / "phrases.toml").read_text(encoding="utf-8"))


@cache
def _referring() -> Mapping[str, Phrases]:
    book = tomllib.loads((Path(__file__).parent / "referring.toml").read_text(encoding="utf-8"))
    return _by_intent(book)


def _by_intent(book: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Phrases]:
    return {f"{scene}.{name}": Phrases(**entry) for scene, entries in book.items() for name, entry in entries.items()}


def phrases_of(beat: Beat) -> Phrases:
    """The paraphrases of a beat, those that refer to earlier results included."""
    found = phrases().get(beat.intent)
    return _referring()[beat.intent] if found is None else found


@cache
def phrases() -> Mapping[str, Phrases]:
    """Every request's paraphrases by intent, without those that refer to earlier results."""
    return _by_intent({scene: entries for scene, entries in _book().items() if scene not in ("clause", "supply")})


def omittable(beat: Beat) -> tuple[str, ...]:
    """The slots of a beat that a user can leave out."""
    return tuple(phrases_of(beat).without)


def request(rng: random.Random, beat: Beat, *, first: bool, without: str | None = None, varied: bool = False) -> str:
    """The request as a user words it.

    `first` says that it opens the turn; `without` names a slot to leave out; `varied` is the register.
    """
    known = phrases_of(beat)
    text = rng.choice(known.ask if without is None else known.without[without]).format_map(beat.slots)
    if varied:
        text = worded(rng, text)
    if not first:
        text = connected(rng, text) if varied else rng.choice(_CONNECTORS).format(lowered(text))
    if beat.clause is None:
        return text
    clause = rng.choice(_book()["clause"][beat.clause]).format_map(beat.slots)
    return f"{clause} {text}" if first and rng.random() < 0.5 else f"{text} {clause}"


def supply(rng: random.Random, beat: Beat, slot: str, *, varied: bool = False) -> str:
    """What the user says to give the value that was left out."""
    text: str = rng.choice(_book()["supply"][slot]).format_map(beat.slots)
    return recalled(rng, text) if varied else text
