"""Words that reveal nothing: the vocabulary of the public tool documentation, and everyday English."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from envs.interface.letters import parts, plain_letters, tokens
from envs.sources import TaskSource, known_sources
from envs.text import texts_in

Sources = tuple[TaskSource, ...]

EVERYDAY = frozenset((Path(__file__).parent / "everyday.txt").read_text(encoding="utf-8").split())
"""Some 1,100 words of general advice, in their base forms."""

_SUFFIXES = ("s", "es", "ed", "ing", "ly", "er", "ies", "ied", "able", "ness", "ment", "al", "ation", "ity")
_DECIMALS = re.compile(r"(?<!\d)\d++\.\d+")
_MAX_NAME = 200
"""Letters and digits of a tool's name that are compared."""


def is_ordinary(word: str) -> bool:
    """Whether a lower-case word, in some form, is in the public documentation or everyday English.

    Single letters, except "a" and "i", and numbers are not: they are parts of something.
    """
    return _is_ordinary(word, known_sources())


@lru_cache(maxsize=1 << 14)
def _is_ordinary(word: str, sources: Sources) -> bool:
    if len(word) == 1 or word.isdigit():
        return word in ("a", "i")
    known = _public(sources).words
    if word in known:
        return True
    for suffix in _SUFFIXES:
        stem = word.removesuffix(suffix)
        if len(stem) >= 3 and stem != word:
            forms = {stem, stem + "e", stem + "y", stem[:-1] if stem[-1] == stem[-2] else stem}
            if forms & known:
                return True
    return False


def is_public(phrase: str) -> bool:
    """Whether lower-case words, joined by spaces, occur in this order in the public documentation."""
    return _is_public(phrase, known_sources())


@lru_cache(maxsize=1 << 14)
def _is_public(phrase: str, sources: Sources) -> bool:
    return f" {phrase} " in _public(sources).text


def is_public_number(text: str) -> bool:
    """Whether the documentation contains the number, in digits."""
    return text in _public(known_sources()).numbers


def tool_names() -> tuple[Mapping[str, str], frozenset[str]]:
    """Every tool's name by its lower-case letters and digits, and the prefixes of these."""
    public = _public(known_sources())
    return public.tools, public.beginnings


class _Public(NamedTuple):
    """The public vocabulary of some sources; `text` has its words with a space on each side."""

    text: str
    words: frozenset[str]
    numbers: frozenset[str]
    tools: Mapping[str, str]
    beginnings: frozenset[str]


@lru_cache(maxsize=4)  # by the sources that are known, as a setting can name another one at any time
def _public(sources: Sources) -> _Public:
    tools = dict.fromkeys(tool for source in sources for tool in source.tools().values())
    texts = [text for tool in tools for text in texts_in(tool.document)]
    texts += [text for source in sources for text in source.public_texts()]
    # Once as the words are written, once with "lockDoors" as two; the mark between texts keeps phrases apart.
    readings = [tokens(text) for text in texts] + [parts(text) for text in texts]
    readings += [tokens(plain_letters(text), wide=True) for text in texts if not text.isascii()]
    text = f" {' | '.join(' '.join(reading) for reading in readings)} "
    numbers = {number for text in texts for number in (*_DECIMALS.findall(text), *re.findall(r"\d+", text))}
    names = {"".join(parts(name)): name for source in sources for name in source.tools()}
    beginnings = frozenset(name[:end] for name in names for end in range(1, min(len(name), _MAX_NAME) + 1))
    return _Public(text, EVERYDAY | frozenset(text.split()), frozenset(numbers), names, beginnings)
