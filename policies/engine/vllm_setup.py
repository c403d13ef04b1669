"""How a vLLM engine is set up: its settings, and vLLM's arguments for them on this machine."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.engine.requests import linear_layers

_log = logging.getLogger("seal_ray")

_THREADS = "OMP_NUM_THREADS"
_ENVIRONMENT = {
    # OpenMP threads spin while they wait, and two processes on few cores then starve each other.
    _THREADS: "1",
    # On CPU the core computes by itself: a worker would cost another import, and the two spin while they wait.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # The first request with log-probs would otherwise compile for ten seconds.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    # Its processes, all on one machine, would otherwise meet at an address of the network.
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""Set, where the user has not, before vLLM is first imported."""


BLOCK = 32
"""Tokens in a cache block. Only whole blocks are reused, and vLLM's 128 on CPU would miss most of a short prompt."""

GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
"""Steps that only sample are recorded, and nothing is compiled, which would make starts longer (docs/gpu.md).

With all steps recorded ("FULL"), log-probs of requests with an adapter were NaN (vLLM 0.32, seen on an H200).
"""

_DIED = "Engine core initialization failed"
"""How vLLM's error begins when the core process ended before it was ready; what it said itself is on stderr."""

MOST_BATCHED = 8192
"""Tokens that one step computes at most, of all requests together."""

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The ranks that vLLM can make room for; smaller adapters fit too."""


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """How the engine is set up.

    `context` counts prompt and response tokens together. `max_adapters` is the number of policies that can have an
    adapter on top of the base, each of rank `max_lora_rank` at most; 0 is an engine without them. A GPU must have
    `gpu_memory_share` of its memory free when the engine starts. `threads` compute on a CPU; None is one, or what the
    environment says. With `graphs` steps that sample one token a dialogue are recorded as CUDA graphs when the engine
    starts, which a GPU needs to be quick at them.
    """

    model: Path
    context: int
    dtype: str = "float32"
    kv_cache_bytes: int = 256 << 20
    max_concurrent: int = 256
    max_batched_tokens: int = MOST_BATCHED
    seed: int = 0
    max_adapters: int = 0
    max_lora_rank: int = 16
    gpu_memory_share: float = 0.9
    threads: int | None = None
    graphs: bool = False
    worker_extension: str = "policies.engine.vllm_worker.WeightsExtension"


def prepare_environment(threads: int | None) -> None:
    """Sets what vLLM reads when it is first imported."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        os.environ[_THREADS] = str(threads)


def start_llm(settings: VllmSettings, *, adapter_slots: int, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Starts vLLM's asynchronous front end, and its core behind it. `shapes` are those of the model's tensors by name.

    A core that ends while it starts is started once more, as one that ends at work is. It was seen once, on a busy
    machine; why is not known.
    """
    prepare_environment(settings.threads)
    from vllm.config import StructuredOutputsConfig
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=str(settings.model),
        dtype=settings.dtype,
        # Only grammars need a tokenizer; everything else is token ids.
        skip_tokenizer_init=not (settings.model / "tokenizer.json").exists(),
        max_model_len=settings.context,
        max_num_seqs=settings.max_concurrent,
        max_num_batched_tokens=settings.max_batched_tokens,
        block_size=BLOCK,
        kv_cache_memory_bytes=settings.kv_cache_bytes,
        gpu_memory_utilization=settings.gpu_memory_share,
        enable_prefix_caching=True,
        enforce_eager=not settings.graphs,
        compilation_config=GRAPHS if settings.graphs else {},
        logprobs_mode="processed_logprobs",
        disable_log_stats=True,
        seed=settings.seed,
        worker_extension_cls=settings.worker_extension,
        enable_lora=settings.max_adapters > 0,
        max_loras=max(1, adapter_slots),
        max_lora_rank=_room_for(settings.max_lora_rank),
        # Without them it adds an adapter of nothing to the embeddings and to the output layer too, at every step.
        lora_target_modules=linear_layers(shapes) if settings.max_adapters else None,
        # Other back ends leave room for endless white space, which a small model fills.
        structured_outputs_config=StructuredOutputsConfig(backend="guidance", disable_any_whitespace=True),
    )
    try:
        return AsyncLLM.from_engine_args(arguments)
    except RuntimeError as error:
        if not str(error).startswith(_DIED):
            raise
        _log.warning("vLLM's core process ended while it started; it is started once more (%s)", error)
        return AsyncLLM.from_engine_args(arguments)


def _room_for(rank: int) -> Any:
    """The smallest rank that vLLM can be set up for; beyond all of them vLLM raises an error."""
    return next((room for room in _RANKS if room >= rank), rank)
