"""Putting requests into words: paraphrases from `phrases.toml`, filled with a beat's slots."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from envs.toolworld.scene import Beat

_CONNECTORS = ("Then {}", "After that, {}", "Also, {}", "Next, {}")
_KEPT_CAPITALS = frozenset({"I", "Twitter"})


@dataclass(frozen=True, slots=True)
class Phrases:
    """The paraphrases of one request; `without` holds, by slot, those that leave the slot out."""

    ask: tuple[str, ...]
    without: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Book:
    requests: Mapping[str, Phrases]
    clauses: Mapping[str, tuple[str, ...]]
    supplies: Mapping[str, tuple[str, ...]]


@cache
def _book() -> _Book:
    data = tomllib.loads((Path(__file__).parent / "phrases.toml").read_text(encoding="utf-8"))
    lists = {part: {key: tuple(texts) for key, texts in data.pop(part).items()} for part in ("clause", "supply")}
    requests = {
        f"{scene}.{name}": Phrases(
            tuple(entry["ask"]), {slot: tuple(texts) for slot, texts in entry.get("without", {}).items()}
        )
        for scene, entries in data.items()
        for name, entry in entries.items()
    }
    return _Book(requests, {f"clause.{key}": texts for key, texts in lists["clause"].items()}, lists["supply"])


def phrases() -> Mapping[str, Phrases]:
    """Every request's paraphrases by intent."""
    return _book().requests


def omittable(beat: Beat) -> tuple[str, ...]:
    """The slots of a beat that a user can leave out."""
    return tuple(_book().requests[beat.intent].without)


def request(rng: random.Random, beat: Beat, *, first: bool, without: str | None = None) -> str:
    """The request as a user words it; `first` says that it opens the turn; `without` names a slot to leave out."""
    known = _book().requests[beat.intent]
    text = rng.choice(known.ask if without is None else known.without[without]).format_map(beat.slots)
    if not first:
        word = text.split(maxsplit=1)[0].rstrip(",'")
        text = text if word in _KEPT_CAPITALS else text[0].lower() + text[1:]
        text = rng.choice(_CONNECTORS).format(text)
    if beat.clause is None:
        return text
    clause = rng.choice(_book().clauses[beat.clause]).format_map(beat.slots)
    return f"{clause} {text}" if first and rng.random() < 0.5 else f"{text} {clause}"


def supply(rng: random.Random, beat: Beat, slot: str) -> str:
    """What the user says to give the value that was left out."""
    return rng.choice(_book().supplies[slot]).format_map(beat.slots)
