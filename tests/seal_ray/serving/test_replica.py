"""A replica alone: the engine is asked once a long prompt is read, and answers that were cut are not remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any

import pytest

from seal_ray.serving.queues import SHORT_PROMPT, ReadingQueue
from seal_ray.serving.server import Server, remember_answers


class Asked:
    """A server's engine, in the place of vLLM's: what it is asked for, and how its reading of a prompt ends."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.may_end = asyncio.Event()
        self.engine = SimpleNamespace(_oai_models=SimpleNamespace(lora_requests={}), _engine_client=self)
        self._reading = ReadingQueue(SHORT_PROMPT + 1)

    async def generate(self, prompt: Any, *_: Any, **__: Any) -> AsyncGenerator[None, None]:
        self.events.append("reads")
        try:
            await self.may_end.wait()
            yield None
            self.events.append("has read")
        except asyncio.CancelledError:
            self.events.append("gives up")
            raise

    async def ask(self) -> AsyncGenerator[str, None]:
        async def said() -> AsyncGenerator[str, None]:
            yield "Hello."

        self.events.append("answers")
        return said()

    def answers(self, length: int) -> AsyncGenerator[Any, None]:
        read_first: Any = Server.read_first
        answers: AsyncGenerator[Any, None] = read_first(self, [[1] * length], SimpleNamespace(model="m"), self.ask)
        return answers


async def _first(answers: AsyncGenerator[Any, None]) -> Any:
    return await anext(answers)


def test_an_answer_begins_when_its_prompt_is_read() -> None:
    async def run() -> None:
        asked = Asked()
        first = asyncio.create_task(_first(asked.answers(SHORT_PROMPT + 1)))
        await asyncio.sleep(0.1)
        assert asked.events == ["reads"]
        asked.may_end.set()
        assert await first == "Hello."
        assert asked.events == ["reads", "has read", "answers"]
        short = Asked()
        assert await _first(short.answers(SHORT_PROMPT)) == "Hello."
        assert short.events == ["answers"]

    asyncio.run(run())


def test_a_client_that_goes_while_its_prompt_is_read_is_not_answered() -> None:
    async def run() -> None:
        asked = Asked()
        first = asyncio.create_task(_first(asked.answers(SHORT_PROMPT + 1)))
        await asyncio.sleep(0.1)
        first.cancel()
        await asyncio.wait([first])
        assert asked.events == ["reads", "gives up"]
        assert await asyncio.wait_for(_next(asked), 5) == "Hello.", "its place is free again"

    async def _next(asked: Asked) -> Any:
        asked.may_end.set()
        return await _first(asked.answers(SHORT_PROMPT + 1))

    asyncio.run(run())


@pytest.mark.parametrize(("stop", "kept"), [("null", ["Done."]), ("151645", ["Done."]), ('"\\nUser:"', [])])
def test_an_answer_that_a_text_cut_is_not_remembered(stop: str, kept: list[str]) -> None:
    async def said() -> AsyncGenerator[list[str], None]:
        yield ['data: {"choices": [{"index": 0, "delta": {"content": "Do"}, "token_ids": [1]}]}\n\n']
        last = f'"finish_reason": "stop", "stop_reason": {stop}, "token_ids": [2, 3]'
        yield [f'data: {{"choices": [{{"index": 0, "delta": {{"content": "ne."}}, {last}}}]}}\n\n', "data: [DONE]\n\n"]

    found: list[str] = []

    async def run() -> list[Any]:
        heard = remember_answers(said(), lambda answer: found.append(answer.content), show_tokens=False)
        return [part async for part in heard]

    assert "token_ids" not in str(asyncio.run(run()))
    assert found == kept
