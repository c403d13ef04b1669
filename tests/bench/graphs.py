"""What recorded steps and compiling gain an engine on a GPU: `python -m tests.bench.graphs`.

SmolLM2-135M in bfloat16 with a random adapter of rank 16. 96 dialogues at once, in groups of eight with an opening of
400 tokens, sample five answers of 10 to 79 tokens and read 50 tokens after each, so that most steps read as well as
sample. For each way an engine of its own plays four rounds; the first one is not counted.
"""

import asyncio
import os
import random
import statistics
import time
from unittest.mock import patch

os.environ["TORCHDYNAMO_DISABLE"] = "0"
os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")

from policies.engine import GenRequest, vllm_setup
from policies.engine.vllm_engine import VllmEngine, VllmSettings
from policies.models import open_model
from tests.bench.adapters import ADAPTED, RANK, random_adapter_of

DIALOGUES, GROUP, ANSWERS, ROUNDS = 96, 8, 5, 4
WAYS = {"nothing recorded": None, "as the system has it": vllm_setup.GRAPHS, "vLLM's defaults": {}}


async def _dialogue(engine: VllmEngine, number: int, round_number: int) -> int:
    """Plays one; the tokens that it sampled."""
    shared, own = random.Random(round_number * 1000 + number // GROUP), random.Random(round_number * 1000 + number)
    ids, sampled = [shared.randrange(1000, 40_000) for _ in range(400)], 0
    for answer in range(ANSWERS):
        request = GenRequest(tuple(ids), own.randrange(10, 80), seed=number * ANSWERS + answer, policy=ADAPTED)
        result = await engine.generate(request)
        sampled += len(result.token_ids_T)
        ids += [*result.token_ids_T, *(own.randrange(1000, 40_000) for _ in range(50))]
    return sampled


async def _speed(way: dict[str, object] | None) -> tuple[float, float]:
    """Seconds that the engine takes to start, and tokens that it samples in one: the median of the rounds."""
    model, started = open_model("smollm2-135m").path, time.perf_counter()
    settings = VllmSettings(
        model,
        context=2048,
        dtype="bfloat16",
        kv_cache_bytes=4 << 30,
        gpu_memory_share=0.1,
        max_concurrent=DIALOGUES,
        max_adapters=1,
        max_lora_rank=RANK,
        graphs=way is not None,
    )
    with patch.object(vllm_setup, "GRAPHS", way):
        engine = await VllmEngine.start(settings)
    starting = time.perf_counter() - started
    await engine.update_adapter(ADAPTED, random_adapter_of(model), 1)
    speeds = []
    for round_number in range(ROUNDS):
        began = time.perf_counter()
        tokens = sum(await asyncio.gather(*(_dialogue(engine, each, round_number) for each in range(DIALOGUES))))
        speeds.append(tokens / (time.perf_counter() - began))
    await engine.close()
    return starting, statistics.median(speeds[1:])


def main() -> None:
    first = None
    for name, way in WAYS.items():
        starting, speed = asyncio.run(_speed(way))
        first = first or speed
        print(f"{name}: {speed:.0f} tokens/s ({speed / first:.2f}); the engine starts in {starting:.0f} s", flush=True)


if __name__ == "__main__":
    main()
