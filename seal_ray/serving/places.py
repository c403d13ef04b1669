"""Places for requests that are worked on, and how those that wait for one get it."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

MAX_WAITING = 4_096
"""Requests that wait for a place at most."""


class NoPlace(Exception):
    """So many wait already that one more had better come back later."""


class Places:
    """So many requests are worked on at a time, and at most `waiting` more wait.

    A place that gets free goes by turns to the one that has waited longest and to the newest: behind a thousand others
    a request is still answered at once, and none of the thousand waits for ever. For one event loop.
    """

    def __init__(self, places: int, *, waiting: int) -> None:
        self._free = places
        self._most = waiting
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._newest_next = True

    async def __aenter__(self) -> None:
        if self._free:
            self._free -= 1
            return
        if len(self._waiting) >= self._most:
            raise NoPlace
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # it was passed over already
                    self._waiting.remove(turn)
            else:
                self._pass_on()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._pass_on()

    def _pass_on(self) -> None:
        while self._waiting:
            turn = self._waiting.pop() if self._newest_next else self._waiting.popleft()
            if not turn.done():  # it did not give up
                self._newest_next = not self._newest_next
                turn.set_result(None)
                return
        self._free += 1
