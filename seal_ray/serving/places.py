"""Places for requests that are worked on, and how those that wait for one get it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

MAX_WAITING = 4_096
"""Requests that wait for a place at most."""


class NoPlace(Exception):
    """Too many requests are waiting: this one must be sent again later."""


class Places:
    """So many requests are worked on at a time, and at most `waiting` more wait.

    A place that gets free goes by turns to the one that has waited longest and to the newest: behind a thousand others
    a request is still answered at once, and none of the thousand waits for ever. Those that come `first` go before all
    others. For one event loop.
    """

    def __init__(self, places: int, *, waiting: int) -> None:
        self._free = places
        self._most = waiting
        self._first: deque[asyncio.Future[None]] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._newest_next = True

    @asynccontextmanager
    async def one(self, *, first: bool = False) -> AsyncGenerator[None, None]:
        """Waits for a place, and holds it inside the block. Raises `NoPlace` where too many wait."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(self._first if first else self._waiting)
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, queue: deque[asyncio.Future[None]]) -> None:
        if len(self._first) + len(self._waiting) >= self._most:
            raise NoPlace
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # it was passed over already
                    queue.remove(turn)
            else:
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        while self._first or self._waiting:
            if self._first:
                turn = self._first.popleft()
            else:
                turn = self._waiting.pop() if self._newest_next else self._waiting.popleft()
                self._newest_next ^= not turn.done()
            if not turn.done():  # it did not give up
                turn.set_result(None)
                return
        self._free += 1
