"""An engine together with the event loop it lives on, for tests that are not asynchronous themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Generic, TypeVar

from policies.engine import Engine, GenRequest, GenResult

E = TypeVar("E", bound=Engine)


class Served(Generic[E]):
    """Starts the engine, runs requests together or alone, and ends it."""

    def __init__(self, starting: Coroutine[Any, Any, E]) -> None:
        self.runner = asyncio.Runner()
        self.engine = self.runner.run(starting)

    def all(self, *requests: GenRequest) -> list[GenResult]:
        async def together() -> list[GenResult]:
            return await asyncio.gather(*map(self.engine.generate, requests))

        return self.runner.run(together())

    def one(self, request: GenRequest) -> GenResult:
        (result,) = self.all(request)
        return result

    def close(self) -> None:
        self.runner.run(self.engine.close())
        self.runner.close()
