"""A mixture of task sources, to train on several at once: `ONE:0.75+OTHER:0.25`."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import NoReturn

from envs.errors import UserError, check_known
from envs.sources import BETWEEN, SOURCES, Categories, TaskPool, TaskSource, get_source
from envs.task import Task, ToolDoc, sorted_categories

_CYCLE = 1000
"""Length of a cycle: shares are rounded to a thousandth."""


def parse_shares(words: Sequence[str], *, key: str) -> dict[str, float]:
    """Source → share, from words NAME or NAME:SHARE. Sources without a share divide the rest of 1 equally.

    Raises `UserError`, which names the setting `key`.
    """
    shares: dict[str, float | None] = {}
    for word in words:
        name, colon, share = word.rpartition(":")
        try:
            given = float(share) if colon else None
        except ValueError:
            name, given = word, None  # a custom source is package.module:NAME
        name = name or word
        if given is not None and not 0 < given <= 1:
            raise UserError(f"{key}: the share in {word!r:.80} must be above 0 and at most 1.")
        if name in shares:
            raise UserError(f"{key}: {name} is given twice.")
        shares[name] = given
    left = 1 - sum(share for share in shares.values() if share is not None)
    without = [name for name, share in shares.items() if share is None]
    if left < -1e-9 or (without and left <= 0) or (not without and abs(left) > 1e-9):
        raise UserError(f"{key}: the shares do not add up to 1; leave one out, and that source takes the rest.")
    return {name: left / len(without) if share is None else share for name, share in shares.items()}


@dataclass(frozen=True)
class MixedPool:
    """Tasks of several pools without end, interleaved evenly by share.

    A finite pool is played in epochs, each in an order of its own by the seed.
    """

    pools: tuple[TaskPool, ...]
    cycle: tuple[tuple[int, int], ...]
    """For each number of a cycle: the pool, and how many of its tasks come before in the cycle."""
    counts: tuple[int, ...]
    """Tasks of each pool in a cycle."""
    size: None = None

    def task_id(self, number: int, seed: int = 0) -> str:
        pool, place = self._drawn(number, seed)
        return pool.task_id(place, seed)

    def category(self, number: int) -> str:
        """The category of that task in the sequence of seed 0."""
        pool, place = self._drawn(number, 0)
        return pool.category(place)

    def holds(self, task_id: str) -> bool:
        return any(pool.holds(task_id) for pool in self.pools)

    def _drawn(self, number: int, seed: int) -> tuple[TaskPool, int]:
        """The pool of that task, and the task's number there."""
        cycles, rest = divmod(number, len(self.cycle))
        which, before = self.cycle[rest]
        pool, place = self.pools[which], cycles * self.counts[which] + before
        if pool.size is not None:
            epoch, place = divmod(place, pool.size)
            place = self._order(pool.size, epoch, seed)[place]
        return pool, place

    @staticmethod
    @lru_cache(maxsize=16)
    def _order(size: int, epoch: int, seed: int) -> tuple[int, ...]:
        order = list(range(size))
        random.Random(f"mixture {seed} {epoch}").shuffle(order)
        return tuple(order)


class Mixture(TaskSource):
    """The training tasks of several sources, each with its share. It has no tasks to evaluate on.

    If two sources document a tool of the same name, `tools` has the first one's document; a task offers its own.
    """

    parts = ("train",)
    endless = True

    def __init__(self, name: str, shares: Mapping[str, float], *, key: str = SOURCES.key) -> None:
        self.name = name
        self._sources = tuple(get_source(each, key=key) for each in shares)
        for source in self._sources:
            if "train" not in source.parts:
                raise UserError(f"{key}: {source.name} has no training part.")
        self._cycle = _spread(tuple(shares.values()))
        played = {which for which, _ in self._cycle}
        for which, (each, share) in enumerate(shares.items()):
            if which not in played:
                raise UserError(f"{key}: the share {share:g} of {each} is too small; give {1 / _CYCLE:g} or more.")
        self.about = ", and ".join(f"{100 * share:g} % {get_source(each).about}" for each, share in shares.items())
        self.categories = tuple(sorted_categories(each for source in self._sources for each in source.categories))
        self.takes_difficulty = any(source.takes_difficulty for source in self._sources)
        rooms = [source.context for source in self._sources]
        self.context = None if None in rooms else max(room for room in rooms if room is not None)

    def tools(self) -> Mapping[str, ToolDoc]:
        return MappingProxyType({name: tool for each in reversed(self._sources) for name, tool in each.tools().items()})

    def public_texts(self) -> Iterator[str]:
        return (text for source in self._sources for text in source.public_texts())

    def owns(self, task_id: str) -> bool:
        return any(source.owns(task_id) for source in self._sources)

    def task(self, task_id: str) -> Task:
        source = next((each for each in self._sources if each.owns(task_id)), self._sources[0])
        return source.task(task_id)

    def pool(
        self,
        part: str,
        *,
        split_scheme: str | None = None,
        difficulty: str | None = None,
        categories: Categories = None,
    ) -> MixedPool:
        check_known("split part", self.parts, part)
        if split_scheme is not None:
            raise UserError(
                f"environment.split_scheme: {split_scheme!r:.80} is given; the sources of a mixture use their defaults."
            )
        pools = []
        for source in self._sources:
            kinds = [each for each in source.categories if categories is None or each in categories]
            level = difficulty if source.takes_difficulty else None
            pool = source.pool(part, difficulty=level, categories=kinds) if kinds else None
            if pool is None or pool.size == 0:
                raise UserError(f"environment.categories: {source.name} of the mixture has no task of them.")
            pools.append(pool)
        counts = tuple(sum(which == index for which, _ in self._cycle) for index in range(len(pools)))
        return MixedPool(tuple(pools), self._cycle, counts)

    def split(self, split_scheme: str | None = None, *, seed: int = 0) -> NoReturn:  # noqa: ARG002 - there is none
        raise UserError(f"split: {self.name} is a mixture without end, which cannot be listed.")


@lru_cache(maxsize=16)
def mixture(name: str, *, key: str = SOURCES.key) -> Mixture:
    """The mixture of a name like `ONE:0.75+OTHER:0.25`. Raises `UserError`."""
    return Mixture(name, parse_shares(name.split(BETWEEN), key=key), key=key)


def _spread(shares: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """A cycle with each index spread evenly by its share: the index that is furthest behind comes next."""
    cycle: list[tuple[int, int]] = []
    counts = [0] * len(shares)
    for number in range(1, _CYCLE + 1):
        behind = [share * number - count for share, count in zip(shares, counts, strict=True)]
        which = behind.index(max(behind))
        cycle.append((which, counts[which]))
        counts[which] += 1
    return tuple(cycle)
