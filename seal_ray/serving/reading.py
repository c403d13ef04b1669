"""Admission of prompts to the engine: many short ones or few long ones at a time, so that none waits for long.

An engine reads prompts in the order in which they came, as many tokens a step as there is room for: behind four long
prompts a short one waits until all of them are read. So long prompts take turns here instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

SHORT_PROMPT = 128
"""Tokens of a prompt that is read without waiting."""


class Reading:
    """Lets prompts of so many tokens together be read at a time, or a single longer one; first come, first served.

    For one event loop.
    """

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._taken = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def of(self, tokens: int) -> AsyncGenerator[None, None]:
        """Waits for the turn of a prompt of so many tokens, and holds it inside the block."""
        tokens = min(tokens, self._tokens)
        turn = asyncio.get_running_loop().create_future()
        entry = (tokens, turn)
        self._waiting.append(entry)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                with suppress(ValueError):  # it was passed over already
                    self._waiting.remove(entry)
            else:
                self._taken -= tokens
            self._next()
            raise
        try:
            yield
        finally:
            self._taken -= tokens
            self._next()

    def _next(self) -> None:
        while self._waiting and self._taken + self._waiting[0][0] <= self._tokens:
            tokens, turn = self._waiting.popleft()
            if not turn.done():  # it gave up
                self._taken += tokens
                turn.set_result(None)
