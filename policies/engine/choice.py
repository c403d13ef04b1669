"""The choice of an engine for a model on this machine, and the size of its cache."""

import importlib.util
import math
import os
from collections.abc import Mapping

from envs.errors import UserError, check_known
from policies.engine import Engine
from policies.engine.requests import checkpoint_shapes
from policies.engine.vllm_setup import BLOCK, MOST_BATCHED, prepare_environment
from policies.models import ModelFolder

KINDS = ("vllm", "transformers")
DTYPES: Mapping[str, int] = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Computing type → bytes a value."""
_INSTRUCTIONS = {"bfloat16": ("amx_bf16", "avx512_bf16", "bf16"), "float16": ("amx_fp16", "avx512_fp16", "fp16_arith")}
"""Half type → CPU capabilities, named as in PyTorch, of which one is needed for products in it (x86 and ARM)."""
_LEAST_CACHE = 64 << 20
_VOCABULARY_BLOCK = 64
"""vLLM pads embeddings to a multiple of so many rows before it divides them."""
_WORKING = 2 << 30
"""Bytes that CUDA, recorded steps and sampling take in addition to a step's activations."""
_SHARE_OF_MEMORY = 0.25
"""Largest share of the machine's memory that a cache on CPU takes."""


def default_kind() -> str:
    """vLLM if it is installed, else transformers."""
    return "vllm" if importlib.util.find_spec("vllm") else "transformers"


def choose_kind(asked: str) -> str:
    """`asked`; "auto" is `default_kind`. Raises `UserError` for another kind."""
    kind = default_kind() if asked == "auto" else asked
    check_known("engine", KINDS, kind)
    return kind


def choose_dtype(asked: str | None = None, *, on_gpu: bool | None = None) -> str:
    """The type in which a model is computed: `asked`, but float32 on a CPU without products in that type.

    Such a CPU takes many times as long for a half type as for float32. By default it is bfloat16 on a GPU, which is
    used if there is one, and float32 elsewhere.
    """
    import torch

    on_gpu = torch.cuda.is_available() if on_gpu is None else on_gpu
    if asked is None:
        return "bfloat16" if on_gpu else "float32"
    if on_gpu or asked not in _INSTRUCTIONS:
        return asked
    capabilities = torch.cpu.get_capabilities()
    return asked if any(capabilities.get(name) for name in _INSTRUCTIONS[asked]) else "float32"


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
    tensor_parallel: int = 1,
    can_sleep: bool = False,
    batch_invariant: bool = False,
) -> Engine:
    """Starts an engine of that kind; "auto" is vLLM if it is installed.

    `threads` (on a CPU) None is one for vLLM, and torch's default for transformers. vLLM gets the `cache_share` of a
    cache for all dialogues at their full context, but on a GPU at most the rest of `gpu_memory_share` of its memory. It
    has `tensor_parallel` ranks, each on a GPU or in a process of its own.
    Raises `UserError` for an unknown or missing kind, or a share without room for one dialogue.
    """
    if choose_kind(kind) == "transformers":
        from policies.engine.transformers_engine import TransformersEngine, TransformersSettings

        settings = TransformersSettings(model.path, context, choose_dtype(dtype), concurrent, threads=threads)
        return await TransformersEngine.start(settings)
    if default_kind() != "vllm":
        raise UserError("engine: vllm is not installed; install the cpu or gpu extra, or use transformers.")
    prepare_environment(threads, batch_invariant=batch_invariant)
    from vllm.platforms import current_platform

    dtype = choose_dtype(dtype, on_gpu=(on_gpu := current_platform.is_cuda_alike()))
    if on_gpu:  # CUDA does not survive the forks by which vLLM would start its core
        os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    from policies.engine.vllm_engine import VllmEngine, VllmSettings

    token_bytes, most = model.kv_bytes_per_token(DTYPES[dtype], ranks=tensor_parallel), None
    if on_gpu:
        most = int(gpu_memory_share * current_platform.get_device_total_memory())
        most -= _bytes_without_cache(model, dtype, adapters=adapters, lora_rank=lora_rank, ranks=tensor_parallel)
        if most < dialogue_cache_bytes(context, token_bytes):
            raise UserError(
                f"gpu_memory_share: {gpu_memory_share:g} of this GPU does not hold the model, what a step works with "
                "and one dialogue; raise it, or lower the context."
            )
    cache = cache_bytes(context, concurrent * cache_share, token_bytes, most=most, ranks=tensor_parallel)
    vllm = VllmSettings(
        *(model.path, context, dtype, cache, concurrent),
        max_adapters=adapters,
        max_lora_rank=max(1, lora_rank),
        gpu_memory_share=gpu_memory_share,
        threads=threads,
        graphs=on_gpu,
        tensor_parallel=tensor_parallel,
        can_sleep=can_sleep,
    )
    return await VllmEngine.start(vllm)


def check_tensor_parallel(key: str, ranks: int, model: ModelFolder) -> None:
    """Raises `UserError`, which names the key, if vLLM cannot divide the model among so many tensor-parallel ranks."""
    heads, inner = (int(model.config[name]) for name in ("num_attention_heads", "intermediate_size"))
    rows = math.ceil(int(model.config["vocab_size"]) / _VOCABULARY_BLOCK) * _VOCABULARY_BLOCK

    def fits(count: int) -> bool:
        shared = math.gcd(count, model.kv_heads) in (count, model.kv_heads)
        return shared and not any(size % count for size in (heads, inner, rows))

    if not fits(ranks):
        allowed = ", ".join(str(count) for count in range(1, heads + 1) if fits(count))
        raise UserError(
            f"{key}: {ranks} ranks cannot share {model.name}'s {heads} attention heads, {model.kv_heads} key/value "
            f"heads, {inner} MLP units and {rows} rows of embeddings equally; it must be one of {allowed}."
        )


def cache_bytes(
    context: int, dialogues: float, kv_bytes_per_token: int, *, most: int | None = None, ranks: int = 1
) -> int:
    """Bytes of a rank's cache for so many whole dialogues, but `most` at most.

    None is a quarter of the host's memory for all ranks.

    It holds one dialogue at least. More than all dialogues would gain nothing: each delivery empties the cache.
    """
    if most is None:
        most = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * _SHARE_OF_MEMORY) // ranks
    one = dialogue_cache_bytes(context, kv_bytes_per_token)
    return max(min(int(context * kv_bytes_per_token * dialogues), most), one, _LEAST_CACHE)


def dialogue_cache_bytes(context: int, kv_bytes_per_token: int) -> int:
    """Bytes of a cache for one dialogue, in whole blocks, of which vLLM keeps one for itself."""
    return (context + 2 * BLOCK) * kv_bytes_per_token


def _bytes_without_cache(model: ModelFolder, dtype: str, *, adapters: int, lora_rank: int, ranks: int) -> int:
    """Bytes of a GPU for a rank's weights, adapters, and a step's working memory."""
    shapes, size = checkpoint_shapes(model.path), DTYPES[dtype]
    weights = size * sum(map(math.prod, shapes.values())) // ranks
    return weights + working_bytes(model, shapes, size, adapters=adapters, lora_rank=lora_rank)


def working_bytes(
    model: ModelFolder, shapes: Mapping[str, tuple[int, ...]], bytes_per_value: int, *, adapters: int, lora_rank: int
) -> int:
    """Bytes that an engine takes on a GPU in addition to its model and cache: adapters, and a step's working memory.

    vLLM could measure it, but would count other processes' memory as its own. `shapes` has the model's tensors.
    """
    # Each policy has two: a new one is loaded while the old one is in use.
    adapter_values = 2 * adapters * lora_rank * sum(sum(shape) for shape in shapes.values() if len(shape) == 2)
    activations = 3 * MOST_BATCHED * int(model.config["intermediate_size"])
    return (adapter_values + activations) * bytes_per_value + _WORKING
