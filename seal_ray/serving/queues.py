"""Queues of requests: for a place among those that are worked on, and for the engine's reading of long prompts."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from seal_ray.serving.limits import NoPlace

MAX_WAITING = 4_096
"""Requests that wait for a place at most."""
_FIRST_IN_A_ROW = 3
"""Places that go to those that come first, one after the other, while others wait."""
SHORT_PROMPT = 128
"""Tokens of a prompt that is read without waiting."""

Queue = deque[tuple[int, asyncio.Future[None]]]
"""What each that waits asks for, and what ends its waiting."""


class _Room(ABC):
    """So much room is free. For one event loop."""

    def __init__(self, free: int) -> None:
        self._free = free

    @abstractmethod
    def _let_in(self) -> None:
        """Gives free room to those that wait, in their order."""

    def _give(self, size: int, turn: asyncio.Future[None]) -> None:
        if not turn.done():  # it did not give up
            self._free -= size
            turn.set_result(None)

    def _leave(self, size: int) -> None:
        self._free += size
        self._let_in()

    async def _wait(self, size: int, queue: Queue) -> None:
        entry = (size, asyncio.get_running_loop().create_future())
        queue.append(entry)
        self._let_in()
        try:
            await entry[1]
        except asyncio.CancelledError:
            given_up = entry[1].cancelled()
            if given_up:
                with suppress(ValueError):  # it was passed over already
                    queue.remove(entry)
            self._leave(0 if given_up else size)
            raise


class Places(_Room):
    """So many requests are worked on at a time, and at most `waiting` more wait.

    A place that gets free goes by turns to the one that has waited longest and to the newest: behind a thousand others
    a request is still answered at once, and none of the thousand waits for ever. Those that come `first` go before all
    others, but for one place in four: clients that ask again and again would else keep the others out.
    """

    def __init__(self, places: int, *, waiting: int) -> None:
        super().__init__(places)
        self._most = waiting
        self._first: Queue = deque()
        self._waiting: Queue = deque()
        self._newest_next = True
        self._first_in_a_row = 0

    @asynccontextmanager
    async def one(self, *, first: bool = False) -> AsyncGenerator[None, None]:
        """Waits for a place, and holds it inside the block. Raises `NoPlace` where too many wait."""
        if self._free:
            self._free -= 1
        elif len(self._first) + len(self._waiting) >= self._most:
            raise NoPlace
        else:
            await self._wait(1, self._first if first else self._waiting)
        try:
            yield
        finally:
            self._leave(1)

    def _let_in(self) -> None:
        while self._free and (self._first or self._waiting):
            if self._first and (not self._waiting or self._first_in_a_row < _FIRST_IN_A_ROW):
                size, turn = self._first.popleft()
                self._first_in_a_row += not turn.done()
            else:
                size, turn = self._waiting.pop() if self._newest_next else self._waiting.popleft()
                if not turn.done():
                    self._newest_next = not self._newest_next
                    self._first_in_a_row = 0
            self._give(size, turn)


class ReadingQueue(_Room):
    """Lets prompts of so many tokens together be read at a time, or a single longer one; first come, first served.

    An engine reads prompts in the order in which they came, as many tokens a step as there is room for: behind four
    long prompts a short one waits until all of them are read. So long prompts take turns here instead.
    """

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self._tokens = tokens
        self._waiting: Queue = deque()

    @asynccontextmanager
    async def of(self, tokens: int) -> AsyncGenerator[None, None]:
        """Waits for the turn of a prompt of so many tokens, and holds it inside the block."""
        tokens = min(tokens, self._tokens)
        await self._wait(tokens, self._waiting)
        try:
            yield
        finally:
            self._leave(tokens)

    def _let_in(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            self._give(*self._waiting.popleft())
