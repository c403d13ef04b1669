"""vLLM on a GPU, its steps recorded as CUDA graphs: weights and adapters arrive, and the log-probs are the model's."""

import os
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from policies.engine import GenRequest, GenResult
from policies.engine.vllm_engine import VllmEngine, VllmSettings
from tests.policies.contract import PROMPT
from tests.policies.models import load, load_adapted, logprobs_of, random_adapter, random_qwen2
from tests.policies.served import Served, update_in_buckets

ROUNDING = 0.15
"""Nats by which log-probs in bfloat16 may differ on average from those in float32."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_qwen2(tmp_path_factory.mktemp("models") / "first", seed=0)


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served[VllmEngine]]:
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    settings = VllmSettings(
        folder,
        context=512,
        dtype="bfloat16",
        kv_cache_bytes=1 << 30,
        gpu_memory_share=0.05,
        max_adapters=1,
        graphs=True,
    )
    served = Served(VllmEngine.start(settings))
    yield served
    served.close()


def errors(model: Any, request: GenRequest, result: GenResult) -> list[float]:
    """Nats between the log-prob of each token of the answer and that of Hugging Face's model in float32."""
    expected = logprobs_of(model, request.prompt_ids, result.token_ids_T)
    return [abs(mine - theirs) for mine, theirs in zip(result.sampled_logprobs_T, expected, strict=True)]


def mean_error(served: Served[VllmEngine], model: Any, policy: str = "base") -> float:
    """Their mean over 16 answers that are sampled together."""
    requests = [GenRequest((*PROMPT, 100 + seed), max_tokens=32, seed=seed, policy=policy) for seed in range(16)]
    results = zip(requests, served.all(*requests), strict=True)
    return mean([off for request, result in results for off in errors(model, request, result)])


def test_log_probs_are_the_models_before_and_after_each_delivery(
    served: Served[VllmEngine], folder: Path, tmp_path: Path
) -> None:
    assert mean_error(served, load(folder)) < ROUNDING
    for version in (1, 2):
        other = random_qwen2(tmp_path / str(version), seed=version)
        assert mean_error(served, load(other)) > 5 * ROUNDING
        served.runner.run(served.engine.update_weights(load_file(other / "model.safetensors"), version))
        assert mean_error(served, load(other)) < ROUNDING
    other = random_qwen2(tmp_path / "buckets", seed=3)
    update_in_buckets(served, other, 3, device="cuda", dtype="bfloat16")
    assert mean_error(served, load(other)) < ROUNDING
    served.runner.run(served.engine.update_weights(load_file(folder / "model.safetensors"), 4))


def test_an_adapter_arrives_and_the_base_stays(served: Served[VllmEngine], folder: Path) -> None:
    for version, seed in ((1, 5), (2, 6)):
        adapter = random_adapter(folder, seed=seed)
        served.runner.run(served.engine.update_adapter("solver", adapter, version))
        assert mean_error(served, load_adapted(folder, adapter), "solver") < ROUNDING
        assert mean_error(served, load(folder), "solver") > 2 * ROUNDING
    assert mean_error(served, load(folder)) < ROUNDING


def test_asleep_it_frees_memory_and_requests_wake_it_up(folder: Path) -> None:
    settings = VllmSettings(
        folder, context=512, dtype="bfloat16", kv_cache_bytes=2 << 30, gpu_memory_share=0.1, can_sleep=True
    )
    served = Served(VllmEngine.start(settings))
    try:
        before = mean_error(served, load(folder))
        awake, _ = torch.cuda.mem_get_info()
        served.runner.run(served.engine.sleep())
        asleep, _ = torch.cuda.mem_get_info()
        assert asleep - awake > 2 << 30
        assert mean_error(served, load(folder)) == pytest.approx(before, abs=1e-3)
        other = random_qwen2(folder.parent / "other", seed=9)
        served.runner.run(served.engine.sleep())
        served.runner.run(served.engine.update_weights(load_file(other / "model.safetensors"), 1))
        assert mean_error(served, load(other)) < ROUNDING
    finally:
        served.close()


def test_requests_of_all_lengths_at_once_are_each_their_own(served: Served[VllmEngine], folder: Path) -> None:
    """Steps that only sample against steps that read as well, with the adapter and without."""
    adapter = random_adapter(folder, seed=7)
    served.runner.run(served.engine.update_adapter("solver", adapter, 3))
    models = {"solver": load_adapted(folder, adapter), "base": load(folder)}
    requests = [
        GenRequest(
            (*PROMPT, *range(100, 100 + 7 * number)),
            max_tokens=4 + number % 13 * 5,
            seed=number,
            policy="base" if number % 3 else "solver",
        )
        for number in range(48)
    ]
    for request, result in zip(requests, served.all(*requests), strict=True):
        assert mean(errors(models[request.policy], request, result)) < 2 * ROUNDING, request
