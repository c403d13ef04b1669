"""Which engine a model gets, and how large its cache is: on a CPU, and on a GPU that is said to be there."""

import asyncio
import math
from typing import Any

import pytest
import torch

from envs.errors import UserError
from policies.engine import choice
from policies.engine.choice import cache_bytes, choose_dtype, start_engine
from policies.engine.requests import checkpoint_shapes
from policies.models import open_model

GIB = 1 << 30


def test_a_cache_holds_what_dialogues_need_as_far_as_there_is_room() -> None:
    a_token = 1 << 20
    assert cache_bytes(1024, 4, a_token, most=8 * GIB) == 4 * GIB
    assert cache_bytes(1024, 4, a_token, most=3 * GIB) == 3 * GIB
    assert cache_bytes(1024, 4, a_token, most=-GIB) == (1024 + 2 * 32) << 20, "one dialogue, whatever there is"


@pytest.mark.parametrize(
    ("there", "computed"),
    [
        ({"avx2": True, "avx512_f": True}, {"bfloat16": "float32", "float16": "float32"}),
        ({"avx512_bf16": True}, {"bfloat16": "bfloat16", "float16": "float32"}),
        ({"amx_bf16": True, "avx512_fp16": True}, {"bfloat16": "bfloat16", "float16": "float16"}),
        ({"neon": True, "fp16_arith": True, "bf16": False}, {"bfloat16": "float32", "float16": "float16"}),
    ],
)
def test_a_cpu_computes_half_types_only_where_it_has_products_in_them(
    monkeypatch: pytest.MonkeyPatch, there: dict[str, bool], computed: dict[str, str]
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: there)
    for asked, dtype in ({"float32": "float32"} | computed).items():
        assert choose_dtype(asked, on_gpu=False) == dtype
        assert choose_dtype(asked, on_gpu=True) == asked
        assert started_with(monkeypatch, gpu=0, share=0.9, dtype=asked).dtype == dtype
    assert choose_dtype(on_gpu=False) == "float32"
    assert choose_dtype(on_gpu=True) == "bfloat16"


def started_with(
    monkeypatch: pytest.MonkeyPatch, *, gpu: int, share: float, dtype: str = "bfloat16", **more: int
) -> Any:
    """The settings of the engine that the tiny model gets, on a GPU of so many bytes, or without one for 0."""
    from vllm.platforms import current_platform

    from policies.engine.vllm_engine import VllmEngine

    async def settings_alone(settings: Any) -> Any:
        return settings

    platform = type(current_platform)
    monkeypatch.setattr(choice, "prepare_environment", lambda threads, **_: None)  # of a process of its own
    monkeypatch.setattr(platform, "is_cuda_alike", lambda _: bool(gpu))
    monkeypatch.setattr(platform, "get_device_total_memory", lambda *_: gpu, raising=False)
    monkeypatch.setattr(VllmEngine, "start", settings_alone)
    monkeypatch.setenv("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    given: dict[str, Any] = {"context": 1024, "dtype": dtype, "concurrent": 64, "gpu_memory_share": share}
    return asyncio.run(start_engine("vllm", open_model("tiny"), **{**given, **more}, lora_rank=16))


def test_on_a_gpu_steps_are_recorded_and_the_cache_keeps_to_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    model, shapes = open_model("tiny"), checkpoint_shapes(open_model("tiny").path)
    needed = 64 * 1024 * model.kv_bytes_per_token(2)

    def cache_of(memory: int, **more: Any) -> int:
        found: int = started_with(monkeypatch, gpu=memory, share=1.0, **more).kv_cache_bytes
        return found

    wide = started_with(monkeypatch, gpu=80 * GIB, share=0.5)
    assert (wide.graphs, wide.kv_cache_bytes, wide.gpu_memory_share) == (True, needed, 0.5)
    on_cpu = started_with(monkeypatch, gpu=0, share=0.5, dtype="float32")
    assert (on_cpu.graphs, on_cpu.kv_cache_bytes) == (False, 2 * needed)
    assert cache_of(80 * GIB, tensor_parallel=2) == needed // 2, "of each rank"
    small, weights = 2 * GIB + (140 << 20), 2 * sum(map(math.prod, shapes.values()))
    beside = (2 << 30) + weights + 2 * 3 * 8192 * int(model.config["intermediate_size"])
    adapters = 2 * 2 * 16 * 2 * sum(sum(shape) for shape in shapes.values() if len(shape) == 2)
    assert cache_of(small) == small - beside
    assert cache_of(small, adapters=2) == small - beside - adapters
    assert cache_of(small, tensor_parallel=2, concurrent=256) == small - beside + weights - weights // 2
    with pytest.raises(UserError, match=r"gpu_memory_share: 0.5 of this GPU does not hold"):
        started_with(monkeypatch, gpu=small, share=0.5)
