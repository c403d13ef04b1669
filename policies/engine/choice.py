"""Which engine serves a model here, and how large its cache is."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping

from envs.errors import UserError, unknown_value
from policies.engine.base import Engine
from policies.engine.requests import checkpoint_shapes
from policies.engine.vllm_setup import BLOCK, MOST_BATCHED, prepare_environment
from policies.models import ModelFolder

KINDS = ("vllm", "transformers")
DTYPES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
"""The types that an engine can compute in, with their bytes a value."""
_INSTRUCTIONS = {
    "bfloat16": ("amx_bf16", "avx512_bf16", "bf16"),
    "float16": ("amx_fp16", "avx512_fp16", "fp16_arith"),
}
"""What a CPU must be capable of, in PyTorch's words, one of it, for products in a half type: on x86, and on ARM."""
_LEAST_CACHE = 64 << 20
_WORKING = 2 << 30
"""Bytes that CUDA, recorded steps and sampling take beside a step's activations."""
_SHARE_OF_MEMORY = 0.25
"""Share of the machine's memory that a cache on CPU takes at most, where it is to hold many long dialogues."""


def default_kind() -> str:
    """vLLM where it is installed, else transformers."""
    return "vllm" if importlib.util.find_spec("vllm") else "transformers"


def choose_dtype(asked: str | None = None, *, on_gpu: bool | None = None) -> str:
    """The type in which a model is computed: the one `asked` for, but float32 on a CPU without products in it.

    Such a CPU takes many times as long for a half type as for float32 (docs/performance.md). None asks for bfloat16 on
    a GPU and for float32 elsewhere. `on_gpu` says where it is computed; None is on a GPU where there is one.
    """
    import torch

    on_gpu = torch.cuda.is_available() if on_gpu is None else on_gpu
    if asked is None:
        return "bfloat16" if on_gpu else "float32"
    if on_gpu or asked not in _INSTRUCTIONS:
        return asked
    there = torch.cpu.get_capabilities()
    return asked if any(there.get(name) for name in _INSTRUCTIONS[asked]) else "float32"


async def start_engine(
    kind: str,
    model: ModelFolder,
    *,
    context: int,
    dtype: str,
    concurrent: int,
    adapters: int = 0,
    lora_rank: int = 16,
    cache_share: float = 1.0,
    gpu_memory_share: float = 0.9,
    threads: int | None = None,
) -> Engine:
    """Starts an engine of that kind; "auto" is vLLM where it is installed. `adapters` of `lora_rank` can be served.

    It computes in `choose_dtype(dtype)`, on a CPU with so many `threads`; None is one for vLLM, and what torch takes
    for transformers. vLLM has the `cache_share` of a cache for all dialogues at their full context, on a GPU as far as
    `gpu_memory_share` of its memory holds that. Raises `UserError` for an unknown kind, one that is not installed, or a
    share without room for one dialogue.
    """
    kind = default_kind() if kind == "auto" else kind
    if kind not in KINDS:
        raise unknown_value("engine", kind, KINDS)
    if kind == "transformers":
        from policies.engine.transformers_engine import TransformersEngine, TransformersSettings

        dtype = choose_dtype(dtype)
        return await TransformersEngine.start(
            TransformersSettings(model.path, context=context, dtype=dtype, max_concurrent=concurrent, threads=threads)
        )
    if not importlib.util.find_spec("vllm"):
        raise UserError("engine: vllm is not installed; install the cpu or gpu extra, or use transformers.")
    prepare_environment(threads)
    from vllm.platforms import current_platform

    on_gpu = current_platform.is_cuda_alike()
    dtype = choose_dtype(dtype, on_gpu=on_gpu)
    if on_gpu:  # CUDA does not survive the forks by which vLLM would start its core
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    from policies.engine.vllm_engine import VllmEngine, VllmSettings

    a_token, most = model.kv_bytes_per_token(DTYPES[dtype]), None
    if on_gpu:
        most = int(gpu_memory_share * current_platform.get_device_total_memory())
        shapes = checkpoint_shapes(model.path)
        most -= DTYPES[dtype] * sum(map(math.prod, shapes.values()))
        most -= working_bytes(model, shapes, DTYPES[dtype], adapters=adapters, lora_rank=lora_rank)
        if most < a_dialogue(context, a_token):
            raise UserError(
                f"gpu_memory_share: {gpu_memory_share:g} of this GPU does not hold the model, what a step works with "
                "and one dialogue; raise it, or lower the context."
            )
    return await VllmEngine.start(
        VllmSettings(
            model.path,
            context=context,
            dtype=dtype,
            kv_cache_bytes=cache_bytes(context, concurrent * cache_share, a_token, most=most),
            max_concurrent=concurrent,
            max_adapters=adapters,
            max_lora_rank=max(1, lora_rank),
            gpu_memory_share=gpu_memory_share,
            threads=threads,
            graphs=on_gpu,
        )
    )


def cache_bytes(context: int, dialogues: float, kv_bytes_per_token: int, *, most: int | None = None) -> int:
    """A cache that holds so many dialogues whole, if `most` bytes can, or a quarter of the host's memory; at least one.

    More would gain nothing: what is in the cache is forgotten at each delivery.
    """
    if most is None:
        most = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _SHARE_OF_MEMORY)
    one = a_dialogue(context, kv_bytes_per_token)
    return max(min(int(context * kv_bytes_per_token * dialogues), most), one, _LEAST_CACHE)


def a_dialogue(context: int, kv_bytes_per_token: int) -> int:
    """Bytes of a cache for one dialogue of that many tokens, in whole blocks, of which vLLM keeps one for itself."""
    return (context + 2 * BLOCK) * kv_bytes_per_token


def working_bytes(
    model: ModelFolder, shapes: Mapping[str, tuple[int, ...]], bytes_per_value: int, *, adapters: int, lora_rank: int
) -> int:
    """Bytes that an engine takes on a GPU beside its model and its cache: adapters, and what a step works with.

    `shapes` are those of the model's tensors by name. vLLM could measure it, but counts what other processes take
    meanwhile as its own.
    """
    # Each policy has two, since a new one is loaded beside the one in use.
    held = 2 * adapters * lora_rank * sum(sum(shape) for shape in shapes.values() if len(shape) == 2)
    activations = 3 * MOST_BATCHED * int(model.config["intermediate_size"])
    return (held + activations) * bytes_per_value + _WORKING
