"""One of each in turn: the order in which the first few are of all kinds."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from typing import TypeVar

Item = TypeVar("Item")


def interleaved(columns: Iterable[Iterable[Item]]) -> Iterator[Item]:
    """The first of each column, then the second of each, and so on; no item is None."""
    return (item for row in zip_longest(*columns) for item in row if item is not None)
