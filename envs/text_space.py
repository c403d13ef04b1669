"""The Gymnasium space of texts that agents exchange, which vector environments can share between processes."""

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils.shared_memory import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

_MAX_LENGTH = 10_000_000
"""Characters; far above the longest dialogue, and a bound all the same."""
_SHARED_BYTES = 4 << 20
"""UTF-8 of an observation in a vector environment of processes, with its length in the first 8 bytes."""


class UnicodeText(spaces.Text):
    """The space of texts that agents exchange: every string, as models write it and tools return it.

    It samples short printable ASCII ones.
    """

    def __init__(self) -> None:
        super().__init__(max_length=200, min_length=0, charset=string.ascii_letters + string.digits + " {}[]():,")

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= _MAX_LENGTH

    def __repr__(self) -> str:
        return "UnicodeText()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText)


# Gymnasium's functions for `Text` store at most `max_length` characters of `charset`.
@create_shared_memory.register(UnicodeText)
def _create(_: UnicodeText, n: int = 1, ctx: Any = None) -> Any:
    return ctx.Array("B", n * _SHARED_BYTES)


@write_to_shared_memory.register(UnicodeText)
def _write(_: UnicodeText, index: int, value: str, memory: Any) -> None:
    data = value.encode("utf-8", "surrogatepass")
    if len(data) > _SHARED_BYTES - 8:
        raise ValueError(f"observation: it has {len(data)} bytes; vector environments share {_SHARED_BYTES - 8}.")
    block = np.frombuffer(memory.get_obj(), dtype=np.uint8)[index * _SHARED_BYTES :]
    block[:8] = np.frombuffer(len(data).to_bytes(8, "little"), dtype=np.uint8)
    block[8 : 8 + len(data)] = np.frombuffer(data, dtype=np.uint8)


class _SharedTexts(Sequence[str]):
    """The observations in shared memory; a copy is a tuple of the present ones."""

    def __init__(self, blocks: np.ndarray) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: Any) -> Any:
        block = self._blocks[index]
        size = int.from_bytes(block[:8].tobytes(), "little")
        return block[8 : 8 + size].tobytes().decode("utf-8", "surrogatepass")

    def __deepcopy__(self, _: Any) -> tuple[str, ...]:
        return tuple(self)


@read_from_shared_memory.register(UnicodeText)
def _read(_: UnicodeText, memory: Any, n: int = 1) -> Sequence[str]:
    # Gymnasium reads once, and expects views of the memory.
    return _SharedTexts(np.frombuffer(memory.get_obj(), dtype=np.uint8).reshape(n, _SHARED_BYTES))
