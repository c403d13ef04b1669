"""Words of any script, lookalikes of ASCII letters, and words that reveal nothing: public or everyday ones."""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from envs.sources import TaskSource, known_sources
from envs.text import texts_in

_LOOKALIKES = str.maketrans(
    "АВЕКМНОРСТУХІЅЈԌаеорсухіѕјһԁԛԝкмтвнԍгΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεορτυνικηχβγωμɑɡıøØłŁđĐᴀʙᴄᴅᴇꜰɢʜɪᴊᴋʟᴍɴᴏᴘʀꜱᴛᴜᴠᴡʏᴢ",
    "ABEKMHOPCTYXISJGaeopcyxisjhdqwkmtbhgrABEZHIKMNOPTYXaeoptuvikhxbywuagioOlLdDABCDEFGHIJKLMNOPRSTUVWYZ",
)
_FRAMED = {start + i: chr(65 + i) for start in (0x1F150, 0x1F170, 0x1F1E6) for i in range(26)}
"""Letters in dark circles, in dark squares and of flags, which Unicode does not map to plain ones."""
_UNSEEN = dict.fromkeys((0x115F, 0x1160, 0x3164, 0xFFA0, 0x2800))
_APOSTROPHE = re.compile(r"(?<=[A-Za-z])['’](?=[A-Za-z])")
_PARTS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_TOKENS = re.compile(r"[A-Za-z]+|[0-9]+")
_WITHOUT_BLANKS = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    r"\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana and Han
)
_ANY = re.compile(rf"[0-9]+|[{_WITHOUT_BLANKS}]|[^\W\d_{_WITHOUT_BLANKS}]+")


def plain_letters(text: str) -> str:
    """The text with lookalikes of ASCII letters and digits replaced by these, and accents dropped."""
    if not text.isascii():
        spread = unicodedata.normalize("NFKD", text.translate(_FRAMED)).translate(_UNSEEN)
        kept = (char for char in spread if unicodedata.category(char) not in ("Mn", "Me", "Cf"))
        digits = (str(unicodedata.decimal(char, char)) for char in kept)
        # Syllables of Hangul are put together again.
        text = unicodedata.normalize("NFC", "".join(digits).translate(_LOOKALIKES))
    return _APOSTROPHE.sub("", text)


def parts(text: str) -> list[str]:
    """The lower-case Latin words and numbers of a text; "lockDoors" has two, like "lock_doors"."""
    return [part.lower() for part in _PARTS.findall(text)]


def tokens(text: str, *, wide: bool = False) -> list[str]:
    """The lower-case words and numbers of a plain text; "lockDoors" has one. `wide` is as in `word_spans`."""
    return [token.lower() for token in (_ANY if wide else _TOKENS).findall(text)]


def word_spans(text: str, *, wide: bool = False) -> list[tuple[int, int]]:
    """The spans of words and numbers in a plain text.

    Only Latin letters count, unless `wide`. Then a run of letters is a word if the script has spaces; in others
    (Chinese, Japanese, Thai, Lao, Khmer, Burmese) each letter is.
    """
    return [match.span() for match in (_ANY if wide else _PARTS).finditer(text)]


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
