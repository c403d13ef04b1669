"""The cost of a LoRA adapter in an engine's sampling and reading: `python -m tests.bench.adapters`.

SmolLM2-135M in bfloat16 with two threads, once in an engine without adapters and once in one that holds one of rank 16.
There, the base and the adapter answer the same requests in turn: 96 that sample 64 tokens, and 24 that read 800.
"""

import random
import statistics
import time
from pathlib import Path

import torch

from policies.engine import BASE, Adapter, GenRequest
from policies.engine.adapters import lora_tensor_names
from policies.engine.requests import checkpoint_shapes
from policies.engine.vllm_engine import VllmEngine, VllmSettings
from policies.models import open_model
from tests.policies.served import Served

ROUNDS, RANK, ADAPTED = 3, 16, "solver"
LOADS = {"sampled": (96, 8, 64), "read": (24, 800, 1)}
"""Requests, tokens of each prompt, tokens of each answer."""


def random_adapter_of(model: Path) -> Adapter:
    """One of every linear layer."""
    tensors = dict[str, torch.Tensor]()
    for name, shape in checkpoint_shapes(model).items():
        if ".layers." in name and len(shape) == 2:
            half_a, half_b = lora_tensor_names(name.removesuffix(".weight"))
            tensors |= {half_a: 0.02 * torch.randn(RANK, shape[1]), half_b: 0.02 * torch.randn(shape[0], RANK)}
    return Adapter({"r": RANK, "lora_alpha": RANK, "peft_type": "LORA"}, tensors)


def _speeds(model: Path, *, adapters: int) -> dict[tuple[str, str], float]:
    """Tokens a second by policy and load: medians of the rounds, the first of them left out."""
    settings = VllmSettings(
        model,
        context=2048,
        dtype="bfloat16",
        kv_cache_bytes=1 << 30,
        max_concurrent=96,
        max_adapters=adapters,
        max_lora_rank=RANK,
        threads=2,
    )
    served = Served(VllmEngine.start(settings))
    policies = [BASE]
    if adapters:
        served.runner.run(served.engine.update_adapter(ADAPTED, random_adapter_of(model), 1))
        policies.append(ADAPTED)
    rng, seen = random.Random(0), dict[tuple[str, str], list[float]]()
    for _ in range(ROUNDS + 1):
        for policy in policies:
            for load, (count, prompt, answer) in LOADS.items():
                requests = [
                    GenRequest(
                        tuple(rng.randrange(1000, 40_000) for _ in range(prompt)), answer, seed=seed, policy=policy
                    )
                    for seed in range(count)
                ]
                started = time.perf_counter()
                results = served.all(*requests)
                seconds = time.perf_counter() - started
                tokens = sum(len(result.token_ids_T) for result in results) if load == "sampled" else count * prompt
                seen.setdefault((policy, load), []).append(tokens / seconds)
    served.close()
    return {key: statistics.median(values[1:]) for key, values in seen.items()}


def main() -> None:
    model = open_model("smollm2-135m").path
    without, within = _speeds(model, adapters=0), _speeds(model, adapters=1)
    for load in LOADS:
        base, other, adapted = without[BASE, load], within[BASE, load], within[ADAPTED, load]
        print(
            f"{load}: {base:.0f} tokens/s without adapters; in an engine with room for one {other:.0f} by the base "
            f"({other / base:.2f}) and {adapted:.0f} by the adapter ({adapted / base:.2f})"
        )


if __name__ == "__main__":
    main()
