"""Putting requests into words: paraphrases from `phrases.toml`, filled with a beat's slots."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from envs.toolworld.scene import Beat

_CONNECTORS = ("Then {}", "After that, {}", "Also, {}", "Next, {}")
_KEPT_CAPITALS = frozenset({"I", "Twitter"})


@dataclass(frozen=True, slots=True)
class Phrases:
    """The paraphrases of one request; `without` holds, by slot, those that leave the slot out."""

    ask: Sequence[str]
    without: Mapping[str, Sequence[str]] = field(default_factory=dict)


@cache
def _book() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads((Path(__file__).parent / "phrases.toml").read_text(encoding="utf-8"))


@cache
def phrases() -> Mapping[str, Phrases]:
    """Every request's paraphrases by intent."""
    scenes = {scene: entries for scene, entries in _book().items() if scene not in ("clause", "supply")}
    return {f"{scene}.{name}": Phrases(**entry) for scene, entries in scenes.items() for name, entry in entries.items()}


def omittable(beat: Beat) -> tuple[str, ...]:
    """The slots of a beat that a user can leave out."""
    return tuple(phrases()[beat.intent].without)


def request(rng: random.Random, beat: Beat, *, first: bool, without: str | None = None) -> str:
    """The request as a user words it; `first` says that it opens the turn; `without` names a slot to leave out."""
    known = phrases()[beat.intent]
    text = rng.choice(known.ask if without is None else known.without[without]).format_map(beat.slots)
    if not first:
        word = text.split(maxsplit=1)[0].rstrip(",'")
        text = text if word in _KEPT_CAPITALS else text[0].lower() + text[1:]
        text = rng.choice(_CONNECTORS).format(text)
    if beat.clause is None:
        return text
    clause = rng.choice(_book()["clause"][beat.clause]).format_map(beat.slots)
    return f"{clause} {text}" if first and rng.random() < 0.5 else f"{text} {clause}"


def supply(rng: random.Random, beat: Beat, slot: str) -> str:
    """What the user says to give the value that was left out."""
    text: str = rng.choice(_book()["supply"][slot]).format_map(beat.slots)
    return text
