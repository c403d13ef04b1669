"""The lexicon: names, titles, messages and numbers, each the property of exactly one split."""

import hashlib
import itertools
import random
import tomllib
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

SPLITS = ("train", "dev", "test")

_TENTHS = ("train",) * 6 + ("dev",) * 2 + ("test",) * 2
_DRAWS = 400
"""Draws for one value. A split owns at least a fifth of all values, so that this many misses mean an empty pool."""


@cache
def read_table(name: str) -> Mapping[str, Any]:
    """The table `NAME.toml` of this folder."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text(encoding="utf-8"))


_PARTS: Mapping[str, tuple[str, ...]] = {
    name: tuple(texts.split() if isinstance(texts, str) else texts) for name, texts in read_table("words").items()
}
"""The parts that values are joined from."""


@lru_cache(maxsize=1 << 16)
def owner(value: str) -> str:
    """The split that owns a value (train six tenths of all, dev and test two each), the same in every process."""
    return _TENTHS[int.from_bytes(hashlib.blake2b(value.encode(), digest_size=4).digest(), "big") % len(_TENTHS)]


def _joined(*parts: str | Sequence[str], between: str = "") -> tuple[str, ...]:
    """Every combination of these parts, given by name or as lists."""
    lists = (_PARTS[part] if isinstance(part, str) else part for part in parts)
    return tuple(between.join(choice) for choice in itertools.product(*lists))


POOLS: Mapping[str, tuple[str, ...]] = {
    "file": _joined(_joined("marks", "stems"), "extensions", between="."),
    "folder": _joined("folders", "folder_ends"),
    "sentence": _joined("subjects", "predicates", "whens", between=" "),
    "person": tuple(dict.fromkeys((*_PARTS["people"], *_joined("name_starts", "name_ends")))),
    "account": _joined([name.lower() for name in _PARTS["people"]], list(map(str, range(10, 100)))),  # names of users
    "password": _joined("animals", list(map(str, range(100, 1000)))),
    "symbol": _joined("consonants", "vowels", "consonants", "vowels"),  # of stocks
    "place": _joined("place_starts", "place_ends"),
    "title": _joined("troubles", "things", "rooms", between=" "),  # of support tickets
    "topic": _joined("topics", "topic_ends"),  # words of hashtags
}
"""All values by kind, of all splits."""


BENCHMARK = frozenset(_PARTS["benchmark"])
"""Values that tasks of the benchmark contain too."""


@cache
def _owned(kind: str, split: str, apart: bool) -> tuple[str, ...]:
    barred = BENCHMARK if apart else frozenset()
    return tuple(value for value in POOLS[kind] if owner(value) == split and value not in barred)


class UsedUp(Exception):
    """A pool has no further value for this task; the task is drawn again."""


class Words:
    """Draws values that `split` owns, never one twice in a task; with `apart` no value of the benchmark."""

    def __init__(self, rng: random.Random, split: str, *, apart: bool = False) -> None:
        self.rng = rng
        self.split = split
        self._apart = apart
        self._drawn: set[str] = set()

    def pick(self, pool: Sequence[str]) -> str:
        """Any value of the pool; no split owns it."""
        return pool[int(self.rng.random() * len(pool))]

    def identifier(self, digits: int) -> int:
        """A number of so many digits that identifies something; no split owns it."""
        return self.rng.randrange(10 ** (digits - 1), 10**digits)

    def draw(self, kind: str) -> str:
        """A value of a kind, a key of `POOLS`."""
        pool = _owned(kind, self.split, self._apart)
        return self._new(lambda: self.pick(pool))

    def number(self, low: int, high: int) -> int:
        """A whole number, both ends included."""
        return int(self._new(lambda: str(self.rng.randint(low, high))))

    def integer(self, low: int, high: int) -> int:
        """Any whole number, both ends included; no split owns it."""
        return self.rng.randint(low, high)

    def decimal(self, low: int, high: int) -> float:
        """A number with one decimal that is not zero, so that it is written in one way only."""
        return float(self._new(lambda: f"{self.rng.randrange(low, high)}.{self.rng.randrange(1, 10)}"))

    def _new(self, drawn: Callable[[], str]) -> str:
        """A value that the split owns and that was not drawn before."""
        for _ in range(_DRAWS):
            value = drawn()
            if value not in self._drawn and owner(value) == self.split:
                self._drawn.add(value)
                return value
        raise UsedUp
