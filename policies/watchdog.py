"""`Watchdog`: the dialogue that is being computed, for a thread that guards against hanging ones."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActiveDialogue:
    """A dialogue whose environment computes, since a time of the monotonic clock (seconds)."""

    task: str
    seed: int
    since: float


class Watchdog:
    """Follows the dialogues of an event loop, of which one computes at a time; waiting for an engine does not count."""

    def __init__(self) -> None:
        self._active: ActiveDialogue | None = None

    @contextmanager
    def over(self, task: str, seed: int) -> Iterator[None]:
        """Marks the block as this dialogue's work. It must not wait for anything else of the loop."""
        self._active = ActiveDialogue(task, seed, time.monotonic())
        try:
            yield
        finally:
            self._active = None

    def overdue(self, limit: float) -> ActiveDialogue | None:
        """The dialogue that has computed for more than `limit` seconds, if there is one."""
        current = self._active
        return current if current is not None and time.monotonic() - current.since > limit else None
