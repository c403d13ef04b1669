"""Which engine serves a model here, and how large its cache is."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping

from envs.errors import UserError, unknown_value
from policies.engine.base import Engine
from policies.engine.requests import checkpoint_shapes
from policies.engine.vllm_setup import MOST_BATCHED
from policies.models import ModelFolder

KINDS = ("vllm", "transformers")
DTYPES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
"""The types that an engine can compute in, with their bytes a value."""
_LEAST_CACHE = 64 << 20
_WORKING = 2 << 30
"""Bytes that CUDA, recorded steps and sampling take beside a step's activations."""
_SHARE_OF_MEMORY = 0.25
"""Share of the machine's memory that a cache on CPU takes at most, where it is to hold many long dialogues."""


def default_kind() -> str:
    """vLLM where it is installed, else transformers."""
    return "vllm" if importlib.util.find_spec("vllm") else "transformers"


def default_dtype() -> str:
    """bfloat16 on a GPU, else float32."""
    import torch

    return "bfloat16" if torch.cuda.is_available() else "float32"


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

    On a CPU so many `threads` compute; None is one for vLLM, and what torch takes for transformers. vLLM has the
    `cache_share` of a cache for all dialogues at their full context, on a GPU as far as `gpu_memory_share` of its
    memory holds that. Raises `UserError` for an unknown kind, or one that is not installed.
    """
    kind = default_kind() if kind == "auto" else kind
    if kind not in KINDS:
        raise unknown_value("engine", kind, KINDS)
    if kind == "transformers":
        from policies.engine.transformers_engine import TransformersEngine, TransformersSettings

        return await TransformersEngine.start(
            TransformersSettings(model.path, context=context, dtype=dtype, max_concurrent=concurrent, threads=threads)
        )
    if not importlib.util.find_spec("vllm"):
        raise UserError("engine: vllm is not installed; install the cpu or gpu extra, or use transformers.")
    import torch

    on_gpu = torch.cuda.is_available()
    if on_gpu:  # which spoils forks, by which vLLM would start its core
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    from policies.engine.vllm_engine import VllmEngine, VllmSettings

    memory = _room_on_gpu(model, gpu_memory_share, DTYPES[dtype]) if on_gpu else None
    a_token = model.kv_bytes_per_token(DTYPES[dtype])
    return await VllmEngine.start(
        VllmSettings(
            model.path,
            context=context,
            dtype=dtype,
            kv_cache_bytes=cache_bytes(context, concurrent * cache_share, a_token, most=memory),
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
    one = context * kv_bytes_per_token
    return max(min(int(one * dialogues), most), one + (1 << 20), _LEAST_CACHE)


def _room_on_gpu(model: ModelFolder, share: float, bytes_per_value: int) -> int:
    """What a share of this process's GPU has beside a model and what it works with, in bytes.

    vLLM could measure it, but takes what other processes take meanwhile for its own.
    """
    from vllm.platforms import current_platform

    parameters = sum(map(math.prod, checkpoint_shapes(model.path).values()))
    working = _WORKING + 3 * MOST_BATCHED * int(model.config["intermediate_size"]) * bytes_per_value
    return int(share * current_platform.get_device_total_memory()) - parameters * bytes_per_value - working
