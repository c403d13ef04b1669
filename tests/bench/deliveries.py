"""The cost of a delivery of weights to an engine: `python -m tests.bench.deliveries`.

A random Qwen2 of 130 million weights in float32, one engine of the default kind. Its weights are delivered as a run on
one machine does it, by memory that learner and engine share, and as a run over several machines does it, by copies
through Ray's object store; in turn, in one run. An adapter of rank 16 on the same engine is delivered too. Every
delivery ends with the engine's proof that it computes with what was sent.
"""

import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from policies import tiny
from policies.engine import BASE
from policies.engine.choice import default_kind
from policies.engine.stored import store
from seal_ray.config.schema import EngineSection
from seal_ray.rollout.engine_actor import EngineSpec, Payload
from seal_ray.rollout.engine_pool import EnginePool
from seal_ray.run.cluster import connected
from tests.bench.memory import Memory
from tests.policies.models import random_adapter

ROUNDS, RANK = 5, 16
SHAPE = {
    "vocab_size": 32_768,
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_hidden_layers": 11,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}


def _timed(work: Callable[[], None]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder, connected():
        model = Qwen2ForCausalLM(Qwen2Config(**SHAPE))
        model.save_pretrained(folder)
        shutil.copy(tiny.FOLDER / "tokenizer.json", folder)
        weights = {name: each for name, each in model.state_dict().items() if name != "lm_head.weight"}
        size = sum(each.nbytes for each in weights.values())
        kind = default_kind()
        spec = EngineSpec(kind, folder, "qwen", 512, "float32", 4, adapters=1, lora_rank=RANK)
        pool = EnginePool(spec, [-1], EngineSection(num_cpus_per_engine=0.5), timeout=600.0)
        adapter = random_adapter(Path(folder), seed=1, r=RANK)
        took: dict[str, list[float]] = {"shared memory": [], "copies": [], "adapter": []}
        peaks: dict[str, int] = {}

        def deliver(version: int, *, stores: bool) -> None:
            payload = Payload(BASE, version, weights=store(weights) if stores else dict(weights))
            pool.deliver(BASE, version, lambda: payload)
            pool.settle()

        def deliver_adapter(version: int) -> None:
            pool.deliver("a", version, lambda: Payload("a", version, adapter=adapter))
            pool.settle()

        for number in range(2 * ROUNDS + 1):
            stores, version = number % 2 == 0, number + 1
            name = "shared memory" if stores else "copies"
            with Memory() as memory:
                seconds = _timed(partial(deliver, version, stores=stores))
            if number:  # the first one waits for the engine's start
                took[name].append(seconds)
                peaks[name] = max(peaks.get(name, 0), memory.peak)
            took["adapter"].append(_timed(partial(deliver_adapter, version)))
        pool.close()
    medians = {name: statistics.median(values) for name, values in took.items()}
    for name, value in medians.items():
        peak = f", memory at most {peaks[name] / 2**30:.2f} GiB" if name in peaks else ""
        print(f"{name}: {value:.2f} s{peak}")
    print(
        f"{size / 2**30:.2f} GiB of weights, on {kind}: shared memory is "
        f"{medians['copies'] / medians['shared memory']:.1f} times as fast as copies, an adapter "
        f"{medians['shared memory'] / medians['adapter']:.1f} times as fast as all weights"
    )


if __name__ == "__main__":
    main()
