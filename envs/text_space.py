"""The Gymnasium space of texts that agents exchange."""

import string
from typing import Any

from gymnasium import spaces

_MAX_LENGTH = 10_000_000
"""Characters; far above the longest dialogue, and a bound all the same."""


class UnicodeText(spaces.Text):
    """The space of texts that agents exchange: every string, as models write it and tools return it.

    It samples short printable ASCII ones. A vector environment of processes needs `shared_memory=False`.
    """

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(
            max_length=200, min_length=0, charset=string.ascii_letters + string.digits + " {}[]():,", seed=seed
        )

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and len(x) <= _MAX_LENGTH

    def __repr__(self) -> str:
        return "UnicodeText()"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UnicodeText)
