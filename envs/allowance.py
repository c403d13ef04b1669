"""The budget of a dialogue: work per step, memory and shown characters in all. Counted, never timed.

The same completions give the same results on every machine and under any load.
"""

from dataclasses import dataclass
from typing import Any

MAX_CALL_WORK = 1_000_000
"""Units of work of one call; the most expensive call of a ground truth takes 161,000."""
STEP_WORK = 8_000_000
"""Units of work of all calls of one step: about half a second of one core at worst."""
DIALOGUE_KEPT = 4_000_000
"""Units of memory that the calls of one dialogue may leave in the trace, the state and a copy of it."""
CHARACTERS_A_TOKEN = 16
"""Characters of results that are shown per token of context; a token holds about four."""
MAX_COMPLETION = 100_000
"""Characters of a completion that a trace keeps; no dialect reads more."""

VALUE = 40
"""Units of work to allocate, copy and print one value of any type."""
CALL = 300
"""Units of work for a call that does nothing."""
ESCAPED = 12
"""Characters that JSON or `repr` write for one non-ASCII character."""


@dataclass(frozen=True, slots=True)
class Cost:
    """An upper bound of a call's cost: work, and the part that stays in memory.

    Work is in units of up to about 50 ns. A character that is read or written costs 1 (12 if the text is not ASCII), a
    value 40, a call 300. Memory is in units of up to about 16 bytes.
    """

    work: int
    kept: int


def size(value: Any) -> int:
    """Units of work to read, copy or print a plain value once; shared parts count at each occurrence.

    Counting stops above `MAX_CALL_WORK`.
    """
    units = 0
    waiting = [value]
    while waiting and units <= MAX_CALL_WORK:
        item = waiting.pop()
        units += VALUE
        if isinstance(item, str):
            units += len(item) if item.isascii() else ESCAPED * len(item)
        elif isinstance(item, dict):
            units += VALUE * len(item)  # before its items are listed: a large one must not be
            if units <= MAX_CALL_WORK:
                waiting.extend(item)
                waiting.extend(item.values())
        elif isinstance(item, list | tuple | set | frozenset):
            if units + VALUE * len(item) > MAX_CALL_WORK:
                return MAX_CALL_WORK + 1
            waiting.extend(item)
        elif isinstance(item, int):
            units += item.bit_length() // 3
    return units


class Allowance:
    """The remaining budget of one dialogue, for a context of so many tokens."""

    def __init__(self, context: int) -> None:
        self._work = STEP_WORK
        self._kept = DIALOGUE_KEPT
        self._room = CHARACTERS_A_TOKEN * context

    def begin_step(self) -> None:
        """Resets the budget of work; memory and shown characters last for the whole dialogue."""
        self._work = STEP_WORK

    def admits(self, cost: Cost) -> bool:
        """Spends a call's cost. Returns False, and spends nothing, if too little is left."""
        if cost.work > self._work or cost.kept > self._kept or self._room <= 0:
            return False
        self._work -= cost.work
        self._kept -= cost.kept
        return True

    def show(self, text: str) -> str:
        """The text as far as it fits, with a mark at the cut."""
        shown = text[: self._room]
        self._room -= len(shown)
        return shown if len(shown) == len(text) else shown + _mark(len(text) - len(shown))

    def adds(self, characters: int) -> bool:
        """Spends room for optional text. Returns False, and spends nothing, if too little is left."""
        if characters > self._room:
            return False
        self._room -= characters
        return True


def first_part(completion: str) -> str:
    """A completion as a trace stores it: whole, or its first part with a mark."""
    if len(completion) <= MAX_COMPLETION:
        return completion
    return completion[:MAX_COMPLETION] + _mark(len(completion) - MAX_COMPLETION)


def _mark(characters: int) -> str:
    return f"… [cut: {characters} more characters]"
