"""Playing dialogues against the engine's own speed, and vLLM against transformers: `python -m tests.bench.engines`.

The same 96 toolworld dialogues of the tiny base, 64 at a time, sampled. First played; then the very same requests are
replayed to the engine without any environment, 64 at a time and in the same order, from an empty cache. Each is done
twice in turn and the medians are compared, all in one run.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable

from safetensors.torch import load_file

from envs.toolworld import tasks
from policies import tiny
from policies.engine import Engine, GenRequest, GenResult
from policies.engine.choice import start_engine
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.rollouts import RolloutJob, Rollouts
from policies.solver import Budgets, Solver

DIALOGUES, CONCURRENT, CONTEXT, ROUNDS = 96, 64, 2048, 2
GOAL = 0.95


class Remembers:
    """An engine that records its requests."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.requests: list[GenRequest] = []
        self.tokens = 0

    async def generate(self, request: GenRequest) -> GenResult:
        self.requests.append(request)
        result = await self._engine.generate(request)
        self.tokens += len(result.token_ids_T)
        return result


async def _speed(work: Callable[[], Awaitable[int]]) -> float:
    start = time.perf_counter()
    return await work() / (time.perf_counter() - start)


async def _empty_cache(engine: Engine) -> None:
    await engine.update_weights(load_file(tiny.FOLDER / "model.safetensors"), 0)


async def _dialogues(engine: Engine, form: ChatFormat) -> tuple[float, list[GenRequest]]:
    """Sampled tokens a second, and the requests behind them."""
    await _empty_cache(engine)
    noted = Remembers(engine)
    budgets = Budgets(prompt=CONTEXT, response=128, context=CONTEXT)
    rollouts = Rollouts(Solver(noted, form, budgets), concurrent=CONCURRENT)  # type: ignore[arg-type]

    async def play() -> int:
        async for _ in rollouts.play(
            [RolloutJob(task, place) for place, task in enumerate(tasks(DIALOGUES, split="dev"))]
        ):
            pass
        return noted.tokens

    return await _speed(play), noted.requests


async def _replay(engine: Engine, requests: list[GenRequest]) -> float:
    await _empty_cache(engine)
    slots = asyncio.Semaphore(CONCURRENT)

    async def one(request: GenRequest) -> int:
        async with slots:
            return len((await engine.generate(request)).token_ids_T)

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*map(one, requests)))

    return await _speed(all_of_them)


async def _measure(kind: str) -> tuple[float, float, int]:
    """Median tokens a second of dialogues and of the replay, and the number of requests."""
    model = open_model(tiny.NAME)
    form = ChatFormat.load(model.path, model.dialect)
    engine = await start_engine(kind, model, context=CONTEXT, dtype="float32", concurrent=CONCURRENT)
    try:
        _, requests = await _dialogues(engine, form)  # warms up
        played, replayed = [], []
        for _ in range(ROUNDS):
            speed, requests = await _dialogues(engine, form)
            played.append(speed)
            replayed.append(await _replay(engine, requests))
        return statistics.median(played), statistics.median(replayed), len(requests)
    finally:
        await engine.close()


def main() -> None:
    found = {}
    for kind in ("vllm", "transformers"):
        played, replayed, requests = asyncio.run(_measure(kind))
        found[kind] = played
        goal = f" (goal {GOAL})" if kind == "vllm" else ""
        print(
            f"{kind}: {DIALOGUES} dialogues, {requests} completions, {CONCURRENT} at a time: {played:,.0f} tokens/s; "
            f"the same requests alone: {replayed:,.0f} tokens/s; ratio {played / replayed:.2f}{goal}"
        )
    print(f"vllm against transformers, on the same tasks: {found['vllm'] / found['transformers']:.2f} times")


if __name__ == "__main__":
    main()
