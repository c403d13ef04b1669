"""vLLM's arguments on this machine: of an engine by its settings, and of a request."""

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from policies.engine import GenRequest
from policies.engine.requests import linear_layers

_log = logging.getLogger("seal_ray")

_THREADS = "OMP_NUM_THREADS"
_ENVIRONMENT = {
    # OpenMP threads spin while they wait, and two processes on few cores then starve each other.
    _THREADS: "1",
    # On CPU the core computes by itself: a worker would cost another import, and the two spin while they wait.
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    # vLLM would bind the threads of all engines to the same cores.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    # If a rank dies, the others wait for it and never end by themselves.
    "VLLM_WORKER_SHUTDOWN_TIMEOUT_SECONDS": "0",
    # The first request with log-probs would otherwise compile for ten seconds.
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
    # Its processes, all on one machine, would otherwise meet at an address of the network.
    "VLLM_HOST_IP": "127.0.0.1",
    "GLOO_SOCKET_IFNAME": "lo",
}
"""Defaults, set before vLLM is first imported."""
BLOCK = 32
"""Tokens in a cache block. Only whole blocks are reused: vLLM's 128 on CPU would miss most of a short prompt."""
GRAPHS = {"mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
"""Only steps that sample are recorded, and nothing is compiled, which would slow starts down.

With all steps recorded ("FULL"), log-probs of requests with an adapter were NaN (vLLM 0.32, on an H200).
"""
MOST_BATCHED = 8192
"""Largest number of tokens in one step, of all requests together."""
_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values of vLLM's max_lora_rank; smaller adapters fit too."""
_DIED = "Engine core initialization failed"
"""The begin of vLLM's error if the core process ended before it was ready; the core's own error is on stderr."""
_SPACED = {"x-guidance": {"item_separator": ", ", "key_separator": ": "}}
"""llguidance's schema key for the layout of JSON: as `json.dumps` writes it, with the spaces that models know."""


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """The engine's settings. `context` counts prompt and response tokens together.

    `max_adapters` policies can have an adapter, of rank `max_lora_rank` at most. `gpu_memory_share` of a GPU's memory
    must be free when the engine starts. `threads` compute on a CPU; None is one, or what the environment says. With
    `graphs` steps that sample are recorded as CUDA graphs at the start, which makes them fast on a GPU. Each of the
    `tensor_parallel` ranks has its own GPU, or process with so many threads, and its own cache. If it `can_sleep`,
    which only GPUs allow, vLLM allocates memory in a way that can be released.
    """

    model: Path
    context: int
    dtype: str = "float32"
    kv_cache_bytes: int = 256 << 20
    max_concurrent: int = 256
    max_batched_tokens: int = MOST_BATCHED
    max_adapters: int = 0
    max_lora_rank: int = 16
    gpu_memory_share: float = 0.9
    threads: int | None = None
    graphs: bool = False
    tensor_parallel: int = 1
    can_sleep: bool = False
    worker_extension: str = "policies.engine.vllm_worker.WeightsExtension"


def prepare_environment(threads: int | None, *, batch_invariant: bool = False) -> None:
    """Sets the environment that vLLM reads when it is first imported."""
    if batch_invariant:
        os.environ["VLLM_BATCH_INVARIANT"] = "1"
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if threads is not None:
        os.environ[_THREADS] = str(threads)


def start_llm(settings: VllmSettings, *, adapter_slots: int, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Starts vLLM's front end and its core, once more if the core dies at it. `shapes` has the model's tensors."""
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
        tensor_parallel_size=settings.tensor_parallel,
        # In a Ray actor vLLM would start actors of its own. A single rank computes in the core.
        distributed_executor_backend="mp" if settings.tensor_parallel > 1 else None,
        block_size=BLOCK,
        kv_cache_memory_bytes=settings.kv_cache_bytes,
        gpu_memory_utilization=settings.gpu_memory_share,
        enable_prefix_caching=True,
        enable_sleep_mode=settings.can_sleep,
        enforce_eager=not settings.graphs,
        compilation_config=GRAPHS if settings.graphs else {},
        logprobs_mode="processed_logprobs",
        disable_log_stats=True,
        worker_extension_cls=settings.worker_extension,
        enable_lora=settings.max_adapters > 0,
        max_loras=max(1, adapter_slots),
        # A rank beyond all of them is vLLM's to refuse.
        max_lora_rank=next((rank for rank in _RANKS if rank >= settings.max_lora_rank), settings.max_lora_rank),
        # Otherwise it adds an empty adapter to the embeddings and to the output layer too, at every step.
        lora_target_modules=linear_layers(shapes) if settings.max_adapters else None,
        # Other back ends allow endless white space, which a small model produces.
        structured_outputs_config=StructuredOutputsConfig(backend="guidance", disable_any_whitespace=True),
    )
    try:
        return AsyncLLM.from_engine_args(arguments)
    except RuntimeError as error:
        if not str(error).startswith(_DIED):
            raise
        _log.warning("vLLM's core process ended while it started; it is started once more (%s)", error)
        return AsyncLLM.from_engine_args(arguments)


def sampling_params(request: GenRequest) -> Any:
    """vLLM's `SamplingParams` of a request."""
    from vllm import SamplingParams
    from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

    grammar = None
    if request.json_schema is not None:
        grammar = StructuredOutputsParams(json=json.dumps({**_SPACED, **request.json_schema}))
    return SamplingParams(
        max_tokens=request.max_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        seed=request.seed,
        stop_token_ids=list(request.stop_token_ids),
        logprobs=0,
        detokenize=False,
        # One output, at the end: one per token, each with all tokens so far, slows the front end by a third.
        output_kind=RequestOutputKind.FINAL_ONLY,
        # Only the requested stop tokens stop; but after the end of a grammar's text, tokens are sampled unrestricted.
        ignore_eos=grammar is None,
        structured_outputs=grammar,
    )


def token_prompt(prompt_ids: tuple[int, ...], sampling: Any) -> dict[str, Any]:
    """The prompt of a request. Greedy requests share cached prefixes only with each other.

    Rounding can differ behind a cached prefix. So an evaluation, which is greedy, does not change the rounds after it.
    """
    prompt: dict[str, Any] = {"prompt_token_ids": list(prompt_ids)}
    return prompt if sampling.temperature else {**prompt, "cache_salt": "greedy"}
