"""Queues of requests: for a place among running ones, and for the engine's reading of long prompts."""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

from seal_ray.serving.limits import NoPlace

MAX_WAITING = 4_096
"""Requests that wait for a place."""
_FIRST_IN_A_ROW = 3
"""Places for the first requests, while others wait."""
SHORT_PROMPT = 128
"""Tokens of a prompt that is read without waiting."""

Queue = deque[tuple[int, asyncio.Future[None]]]
"""The size that each waiting request needs, and the future that ends its waiting."""


class _Room(ABC):
    """Room that requests share, for one event loop."""

    def __init__(self, free: int) -> None:
        self._free = free

    @abstractmethod
    def _admit(self) -> None:
        """Gives free room to waiting requests, in their order."""

    def _give(self, size: int, turn: asyncio.Future[None]) -> None:
        if not turn.done():  # it was not cancelled
            self._free -= size
            turn.set_result(None)

    def _release(self, size: int) -> None:
        self._free += size
        self._admit()

    async def _wait(self, size: int, queue: Queue) -> None:
        entry = (size, asyncio.get_running_loop().create_future())
        queue.append(entry)
        self._admit()
        try:
            await entry[1]
        except asyncio.CancelledError:
            given_up = entry[1].cancelled()
            if given_up:
                with suppress(ValueError):  # it was skipped already
                    queue.remove(entry)
            self._release(0 if given_up else size)
            raise


class Places(_Room):
    """Places of running requests; at most `waiting` more wait.

    A free place goes by turns to the oldest and to the newest request: behind a thousand others a request is still
    answered at once, and none of the thousand waits for ever. Requests that come `first` precede all others, except for
    one place in four: persistent clients would otherwise keep the others out.
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
        """Waits for a place, and holds it inside the block. Raises `NoPlace` if too many wait."""
        if self._free:
            self._free -= 1
        elif len(self._first) + len(self._waiting) >= self._most:
            raise NoPlace
        else:
            await self._wait(1, self._first if first else self._waiting)
        try:
            yield
        finally:
            self._release(1)

    def _admit(self) -> None:
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
    """Lets prompts of `tokens` together be read at a time, or a single longer one; first come, first served.

    An engine reads prompts in order of arrival, so that a short one waits behind all long ones. Here long prompts wait.
    """

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self._tokens = tokens
        self._waiting: Queue = deque()

    @asynccontextmanager
    async def turn(self, tokens: int) -> AsyncGenerator[None, None]:
        """Waits for the turn of a prompt of so many tokens, and holds it inside the block."""
        tokens = min(tokens, self._tokens)
        await self._wait(tokens, self._waiting)
        try:
            yield
        finally:
            self._release(tokens)

    def _admit(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            self._give(*self._waiting.popleft())
