"""The lexicon: names, titles, messages and numbers, each the property of exactly one split."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

SPLITS = ("train", "dev", "test")

_TENTHS = ("train",) * 6 + ("dev",) * 2 + ("test",) * 2
_DRAWS = 400
"""Draws for one value. A split owns a fifth of all values at least, so this many misses mean a pool is used up."""


def _split(text: str, separator: str | None = None) -> tuple[str, ...]:
    return tuple(text.split(separator))


_MARKS = _split(
    ",red_,blue_,green_,grey_,amber_,white_,black_,pink_,old_,new_,big_,small_,quick_,quiet_,early_,late_,spare_,main_,"
    "rough_,final_,daily_,weekly_",
    ",",
)
_STEMS = _split(
    "budget notes plan report draft menu recipe invoice letter list poem speech diary agenda survey review sketch "
    "summary outline memo guide script log results essay novel song chart table form"
)
_EXTENSIONS = _split("txt md csv log")
_FOLDERS = _split(
    "docs photos music work school travel archive taxes health garden kitchen projects backup clients family games "
    "books lab office market studio winter summer spring autumn"
)
_FOLDER_ENDS = ("", *_split("_old _new _2021 _2022 _2023 _2024 _2025 _a _b _c _one _two _all"))
_SUBJECTS = _split(
    "the meeting|the train|the party|my sister|the parcel|the car|our team|the doctor|the market|the new boss|lunch|"
    "the bus|the tour|the class|the show|the garden|the report|the plumber|our flight|the band",
    "|",
)
_PREDICATES = _split(
    "starts|is ready|is late|will wait|is cancelled|needs help|looks great|was moved|is open|is over|costs more|"
    "comes back|is closed|is on time|was fun",
    "|",
)
_WHENS = _split(
    "today|tonight|on Monday|on Tuesday|on Friday|at noon|at nine|this week|next week|tomorrow|after lunch|"
    "before dawn|in June|in March|on Sunday",
    "|",
)
_PEOPLE = _split(
    "Ada Ben Cora Dan Eva Finn Gina Hugo Iris Jack Kira Liam Mona Noah Olga Paul Quinn Rosa Sam Tina Uma Vera Walt "
    "Xena Yara Zane Amir Bella Carl Dora Emil Faye Glen Hana Ivan Jude Karl Lena Max Nina Oscar Pia Ralf Sara Tom Ugo "
    "Vic Wendy Yuri Zoe Alma Boris Clara Dirk Elsa Felix Greta Hans Ines Jonas Kate Leo Mira Nils Otto Rita Sven"
)
_NAME_STARTS = _split("Al Bel Cor Dar El Fer Gal Hel Jan Kar Lor Mar Nor Or Pel Quil Ros Sel Tar Val Wil Zel")
_NAME_ENDS = _split("a o in ia on us en ina is ora ito")
_ANIMALS = _split("tiger panda otter eagle horse rabbit lion wolf bear fox owl crow seal whale moose goose")
_CONSONANTS = "BDFGKLMNPRSTVZ"
_VOWELS = "AEIOU"
_PLACE_STARTS = _split(
    "Fern Oak Stone River Silver Maple Sun Wolf Clear Green Lake Mill North Rose Snow West Ash Bright Cold Deer "
    "East Fair Gold High"
)
_PLACE_ENDS = _split("hill dale ford wood field port bridge side brook view")
_TROUBLES = _split("broken slow noisy lost missing stuck loose dirty cracked frozen")
_THINGS = _split("printer laptop door window phone screen keyboard badge lamp chair desk fan heater cable mouse")
_ROOMS = _split("in the lab|in the hall|upstairs|in room two|in the lobby|at the gate|in the kitchen", "|")
_TOPICS = _split("food music travel books sport news art film cats dogs sun snow code math garden health")
_TOPIC_ENDS = ("", "day", "talk", "fan", "club", "2024", "2025")


@lru_cache(maxsize=1 << 16)
def owner(value: str) -> str:
    """The split that owns a value: train six tenths of all, dev and test two each. The same in every process."""
    return _TENTHS[int.from_bytes(hashlib.blake2b(value.encode(), digest_size=4).digest(), "big") % len(_TENTHS)]


def _joined(*parts: Sequence[str], between: str = "") -> tuple[str, ...]:
    return tuple(between.join(choice) for choice in itertools.product(*parts))


def _numbers(start: int, end: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(start, end))


_POOLS: Mapping[str, tuple[str, ...]] = {
    "file": _joined(_joined(_MARKS, _STEMS), _EXTENSIONS, between="."),
    "folder": _joined(_FOLDERS, _FOLDER_ENDS),
    "sentence": _joined(_SUBJECTS, _PREDICATES, _WHENS, between=" "),
    "person": tuple(dict.fromkeys((*_PEOPLE, *_joined(_NAME_STARTS, _NAME_ENDS)))),
    "account": _joined([name.lower() for name in _PEOPLE], _numbers(10, 100)),
    "password": _joined(_ANIMALS, _numbers(100, 1000)),
    "symbol": _joined(_CONSONANTS, _VOWELS, _CONSONANTS, _VOWELS),
    "place": _joined(_PLACE_STARTS, _PLACE_ENDS),
    "title": _joined(_TROUBLES, _THINGS, _ROOMS, between=" "),
    "topic": _joined(_TOPICS, _TOPIC_ENDS),
}
"""All values by kind, whoever owns them; `Words` has a method for each kind."""


@cache
def _owned(kind: str, split: str) -> tuple[str, ...]:
    return tuple(value for value in _POOLS[kind] if owner(value) == split)


class UsedUp(Exception):
    """A pool holds no further value for this task; the task is drawn anew."""


class Words:
    """Draws values that `split` owns, never one twice in a task."""

    def __init__(self, rng: random.Random, split: str) -> None:
        self.rng = rng
        self.split = split
        self._drawn: set[str] = set()

    def pick(self, pool: Sequence[str]) -> str:
        """Any value of the pool; owned by nobody."""
        return pool[int(self.rng.random() * len(pool))]

    def identifier(self, digits: int) -> int:
        """A number of so many digits that names something; owned by nobody."""
        return self.rng.randrange(10 ** (digits - 1), 10**digits)

    def file(self) -> str:
        return self._draw("file")

    def folder(self) -> str:
        return self._draw("folder")

    def sentence(self) -> str:
        return self._draw("sentence")

    def person(self) -> str:
        return self._draw("person")

    def account(self) -> str:
        """A user name."""
        return self._draw("account")

    def password(self) -> str:
        return self._draw("password")

    def symbol(self) -> str:
        """A stock symbol."""
        return self._draw("symbol")

    def place(self) -> str:
        return self._draw("place")

    def title(self) -> str:
        """The title of a support ticket."""
        return self._draw("title")

    def topic(self) -> str:
        """The word of a hashtag."""
        return self._draw("topic")

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        for _ in range(_DRAWS):
            value = self.rng.randint(low, high)
            if self._is_new(str(value)):
                return value
        raise UsedUp

    def decimal(self, low: int, high: int) -> float:
        """A number with one decimal that is not zero, so that there is one way to write it."""
        for _ in range(_DRAWS):
            value = f"{self.rng.randrange(low, high)}.{self.rng.randrange(1, 10)}"
            if self._is_new(value):
                return float(value)
        raise UsedUp

    def _draw(self, kind: str) -> str:
        pool = _owned(kind, self.split)
        for _ in range(_DRAWS):
            value = self.pick(pool)
            if value not in self._drawn:
                self._drawn.add(value)
                return value
        raise UsedUp

    def _is_new(self, value: str) -> bool:
        """Whether the split owns a value that was not drawn yet; it counts as drawn from now on."""
        if value in self._drawn or owner(value) != self.split:
            return False
        self._drawn.add(value)
        return True
