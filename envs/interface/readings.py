"""The readings of a text: as written, reversed, in rot13, and with its encodings decoded.

A reading consists of words without lookalike letters, accents, invisible marks and case; text between two words is
kept apart, so that "A A P L", "A-A-P-L" and "ＡＡＰＬ" read as "aapl". Nothing is executed, and the work is bounded.
"""

import base64
import codecs
import html
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple
from urllib.parse import unquote_to_bytes

from envs.interface.vocabulary import is_ordinary, parts, plain_letters, word_spans

_LAYERS = 2
"""Nested encodings that are decoded."""
GROWTH = 12
"""Decoded characters per character of a text, beyond `ALLOWANCE`."""
ALLOWANCE = 2_000
_LEAST_WHOLE = 3
"""Length of a run's decoded text."""
_LEAST_PIECE = 4
"""Length of a printable piece if the run is decoded from another than its first character."""

_DIGIT_NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_DIGITS = dict(zip(_DIGIT_NAMES, "0123456789", strict=True))
_DIGIT_WORD = re.compile(rf"\b(?:{'|'.join(_DIGITS)})\b", re.IGNORECASE)
_DIGIT_WORDS = re.compile(rf"(?:\b(?:{'|'.join(_DIGITS)})\b\W{{0,3}}){{3}}", re.IGNORECASE)

_SPACED = re.compile(r"(?<![A-Za-z0-9])[A-Za-z0-9](?:[^A-Za-z0-9]{1,3}[A-Za-z0-9](?![A-Za-z0-9])){2,}")
_RUN = re.compile(r"[A-Za-z0-9]{4,}")
_LONG_RUN = re.compile(r"[A-Za-z0-9+/_-]{4,}")
_BASE32 = re.compile(r"[A-Za-z2-7]{4,}")
_HEX = re.compile(r"(?:(?:0x|\\x|%)?[0-9A-Fa-f]{2}[\s:,;._-]{0,2}){3,}")
_HEX_NOISE = re.compile(r"0x|[^0-9A-Fa-f]")
_CODES = re.compile(r"(?:\d{2,3}[\s,;.-]{1,2}){2,}\d{2,3}")
_ESCAPE = re.compile(r"(?:\\u\{?|U\+|\\x)([0-9A-Fa-f]{2,6})\}?")
_ASCII = re.compile(rb"[ -~]{%d,}" % _LEAST_PIECE)


class Tangled(Exception):
    """A text decodes into too much text to search."""


class Word(NamedTuple):
    """A lower-case word or number, as written, with the text before and after it."""

    text: str
    written: str
    before: str
    after: str
    ordinary: bool
    """Whether it is an ordinary word. Decoded words never are."""


@dataclass(frozen=True)
class ValueReading:
    """One way to read a text. `turned` means reversed or rot13, `wide` that letters of all scripts count."""

    text: str
    words: tuple[Word, ...]
    turned: bool = False
    wide: bool = False

    @cached_property
    def compact(self) -> str:
        """The words joined."""
        return "".join(word.text for word in self.words)


def read_words(text: str, *, ordinary: bool = True, wide: bool = False) -> tuple[Word, ...]:
    """The words of a text in plain letters; with `ordinary` False none counts as ordinary."""
    words, end = [], 0
    spans = word_spans(text, wide=wide)
    for index, (start, stop) in enumerate(spans):
        following = spans[index + 1][0] if index + 1 < len(spans) else len(text)
        written = text[start:stop]
        small = written.lower()
        is_known = ordinary and is_ordinary(small)
        words.append(Word(small, written, text[end:start], text[stop:following], is_known))
        end = stop
    return tuple(words)


def readings(text: str) -> Iterator[ValueReading]:
    """Every reading of a text, the plain one first. Raises `Tangled` if there are too many."""
    plain = plain_letters(text)
    words = read_words(plain)
    yield ValueReading(plain, words)
    if not plain.isascii():
        yield ValueReading(plain, read_words(plain, wide=True), wide=True)
    yield from _turns(plain, words)
    if _DIGIT_WORDS.search(plain):
        spelled = _DIGIT_WORD.sub(lambda match: _DIGITS[match[0].lower()], plain)
        yield ValueReading(spelled, read_words(spelled))
    for piece in _decodings(plain):
        piece_words = read_words(piece, ordinary=False)
        yield ValueReading(piece, piece_words)
        yield from _turns(piece, piece_words)


def _turns(text: str, words: Sequence[Word]) -> Iterator[ValueReading]:
    backwards = tuple(
        Word(word.text[::-1], word.written[::-1], word.after[::-1], word.before[::-1], word.ordinary)
        for word in reversed(words)
    )
    yield ValueReading(text[::-1], backwards, turned=True)
    rotated = tuple(word._replace(text=_rotated(word.text), written=_rotated(word.written)) for word in words)
    yield ValueReading(_rotated(text), rotated, turned=True)


def _decodings(text: str) -> Iterator[str]:
    """The printable texts that are encoded in a text, its reverse or its rot13, layer by layer."""
    budget = ALLOWANCE + GROWTH * len(text)
    seen: set[str] = set()
    turns: tuple[Callable[[str], str], ...] = (str, lambda run: run[::-1], _rotated)
    layer = [(turn(text), turn) for turn in turns]
    for _ in range(_LAYERS):
        pieces = []
        for source, undo in layer:
            for decoded in _decoded(source, undo):
                piece = plain_letters(decoded)
                if piece in seen:
                    continue
                seen.add(piece)
                budget -= len(piece)
                if budget < 0:
                    raise Tangled
                pieces.append(piece)
        yield from pieces
        layer = [(piece, str) for piece in pieces]


def _decoded(text: str, undo: Callable[[str], str]) -> Iterator[str]:
    """The decoded parts of a text. `undo` restores a run as it was written; ordinary words are left out."""
    for escaped in (html.unescape(text), _ESCAPE.sub(_character, text)):
        if escaped != text:
            yield escaped
    if "%" in text:
        yield unquote_to_bytes(text.encode()).decode("utf-8", "replace")
    for match in _CODES.finditer(text):
        codes = [int(code) for code in re.findall(r"\d+", match[0])]
        yield "".join(chr(code) for code in codes if 32 <= code < 127)
    for match in _HEX.finditer(text):
        digits = _HEX_NOISE.sub("", match[0])
        for start in (0, 1):
            yield from _pieces(bytes.fromhex(digits[start : start + (len(digits) - start) // 2 * 2]), whole=True)
    joined = _SPACED.sub(lambda match: re.sub(r"[^A-Za-z0-9+/]", "", match[0]), text)
    # A run that was cut into pieces is put together again, once with pieces that are words by chance, and once without.
    pieces = re.findall(r"[A-Za-z0-9+/_]+=?", joined)
    unusual = [piece.rstrip("=") for piece in pieces if not _is_prose(undo(piece))]
    broad = [piece.rstrip("=") for piece in pieces if len(piece) == 1 or piece[-1] == "=" or not _is_prose(undo(piece))]
    together = ("".join(unusual), "".join(broad))
    runs = dict.fromkeys((*_RUN.findall(joined), *_LONG_RUN.findall(joined), *together))
    for run in runs:
        if not _is_prose(undo(run)):
            yield from _from_base(run.replace("-", "+").replace("_", "/"), 4, (1,), base64.b64decode)
            for match in _BASE32.finditer(run):
                yield from _from_base(match[0].upper(), 8, (1, 3, 6), base64.b32decode)


def _from_base(run: str, size: int, too_long: Sequence[int], decode: Callable[[str], bytes]) -> Iterator[str]:
    """The pieces of a run in blocks of `size` letters, from each start; ends of `too_long` letters are cut by one."""
    for start in range(size):
        body = run[start:]
        body = body[:-1] if len(body) % size in too_long else body
        yield from _pieces(decode(body + "=" * (-len(body) % size)), whole=start == 0)


def _pieces(data: bytes, *, whole: bool) -> Iterator[str]:
    """The bytes as text if all of them are; else the longer printable pieces."""
    if whole:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = ""
        if len(text) >= _LEAST_WHOLE and text.isprintable():
            yield text
            return
    for piece in _ASCII.findall(data):
        yield piece.decode("ascii")


@lru_cache(maxsize=1 << 12)
def _is_prose(run: str) -> bool:
    """Whether a run consists of ordinary words."""
    return all(map(is_ordinary, parts(run)))


def _rotated(text: str) -> str:
    return codecs.encode(text, "rot13")


def _character(match: re.Match[str]) -> str:
    code = int(match[1], 16)
    return chr(code) if 32 <= code < 0x11_0000 and not 0xD800 <= code < 0xE000 else ""
