"""`Watchdog`: which dialogue is being computed, and since when. A guard in another thread can see one that hangs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ActiveDialogue:
    """A dialogue whose environment is at work, since a time of the monotonic clock (seconds)."""

    task: str
    seed: int
    since: float


class Watchdog:
    """Follows the dialogues of one event loop; one at a time is computed. Waiting for an engine is not computing."""

    def __init__(self) -> None:
        self._at_work: ActiveDialogue | None = None

    @contextmanager
    def over(self, task: str, seed: int) -> Iterator[None]:
        """What runs inside is this dialogue's work. It must not wait for anything else of the loop."""
        self._at_work = ActiveDialogue(task, seed, time.monotonic())
        try:
            yield
        finally:
            self._at_work = None

    def overdue(self, limit: float) -> ActiveDialogue | None:
        """The dialogue that has been at work for more than `limit` seconds, if there is one."""
        current = self._at_work
        return current if current is not None and time.monotonic() - current.since > limit else None
