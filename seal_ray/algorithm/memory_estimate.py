"""Lower bounds of the memory that a run needs, by part and place, so that a run that cannot fit is not started."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from envs.errors import UserError
from envs.roles import SOLVER
from policies.engine.buckets import BUCKET
from policies.engine.choice import DTYPES, cache_bytes, choose_dtype, choose_kind, dialogue_cache_bytes, working_bytes
from policies.engine.requests import checkpoint_shapes
from policies.models import ModelFolder, open_model
from seal_ray.config.resolve import LORA_TARGETS, AgentSpec, RunSpec
from seal_ray.config.schema import EngineSection, TrainingSection
from seal_ray.grpo.forward import chunk_tokens

_PROCESS = 400 << 20
"""Host memory of an idle process with torch and Ray."""
_ADAM = 2
"""Number of moments of a weight."""
_FLOAT32, _HALF = 4, 2
_BUFFERS = 2 * BUCKET
"""Bytes of gathered weights and of the buffer that an engine on the same GPU reads."""
_CONTEXT = 600 << 20
"""GPU memory of a process with CUDA and NCCL, an assumption."""
CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


_MACHINE_GPUS = 8
"""Number of GPUs of a machine if there are several, an assumption."""
_EMBEDDING = "embed_tokens.weight"
_ACTIVATIONS, _REFERENCE = "learner activations", "reference policy"
_ROUNDING = 1e-4


class Place(StrEnum):
    """The location of memory."""

    HOST = "host"
    GPU = "GPU"


@dataclass(frozen=True, slots=True)
class Part:
    """Smallest number of bytes of a part of a run, over all of its actors (and GPUs)."""

    name: str
    place: Place
    size: int


@dataclass(frozen=True, slots=True)
class Available:
    """Bytes of memory of this machine, and of each of its GPUs."""

    host: int
    gpus: tuple[int, ...] = ()


def parts(spec: RunSpec, model: ModelFolder) -> tuple[Part, ...]:
    """The memory of the run, by part.

    The learner holds weights, gradients and two moments in float32, and the frozen reference policy in the dtype of
    products, with FSDP once for the learners of a machine and else once a learner. With LoRA only the adapter has
    gradients and moments, and the base is the reference. A learner has the activations of one micro-batch, and with
    FSDP the layers and embeddings that are whole at a time. On GPUs an engine needs a cache for one dialogue at least.
    """
    engine, learners, training, solver = spec.engine, spec.learners, spec.training, spec.agents[SOLVER]
    shapes = checkpoint_shapes(model.path)
    parameters, learnt = parameter_counts(shapes, solver)
    actors = max(1, learners.num_learners)
    on_machine = actors if actors % _MACHINE_GPUS else _MACHINE_GPUS
    shards = on_machine if learners.fsdp else 1
    copies = actors // shards
    on_gpu = bool(learners.num_gpus_per_learner and learners.num_learners)
    half = choose_dtype(solver.dtype, on_gpu=on_gpu) == "bfloat16"
    frozen = _frozen_bytes(shapes, half=half)
    base = frozen + _FLOAT32 * learnt if solver.lora_rank else _FLOAT32 * parameters
    reference = frozen if training.kl and not solver.lora_rank else 0
    activations = _activations(model, solver, training, on_gpu=on_gpu)
    if learners.fsdp:
        states = _tokens(training, solver) * int(model.config["num_hidden_layers"]) * int(model.config["hidden_size"])
        states *= _HALF if half else _FLOAT32
        working = _sharded_peak(shapes, solver, activations, states, half=half, learners=shards)
    else:  # autocast keeps a copy of what learns in the dtype of products
        copied = _HALF * learnt if half and not solver.lora_rank else 0
        working = activations + copied + _logits(model, training, solver)
    learning = Place.GPU if on_gpu else Place.HOST
    sampling = Place.GPU if engine.num_gpus_per_engine else Place.HOST
    engine_bytes = bytes_per_value(engine)
    steps = 0
    if engine.num_gpus_per_engine:
        adapters = spec.adapters_on(SOLVER)
        steps = working_bytes(model, shapes, engine_bytes, adapters=adapters, lora_rank=solver.lora_rank)
    ranks = engine.num_engines * engine.tensor_parallel
    workers = ranks if engine.tensor_parallel > 1 else 0  # a single rank computes in the core
    processes = 2 + 2 * engine.num_engines + workers + spec.env_runners.num_env_runners + learners.num_learners
    return (
        Part("learner weights", learning, copies * base),
        Part("learner gradients and moments", learning, copies * _FLOAT32 * (1 + _ADAM) * learnt),
        Part(_REFERENCE, learning, copies * reference),
        Part(_ACTIVATIONS + " and whole layers" * learners.fsdp, learning, actors * working),
        Part("engine weights", sampling, engine.num_engines * engine_bytes * parameters),
        Part("engine cache", sampling, ranks * _cache(model, engine, solver)),
        *([Part("engine steps and adapters", sampling, ranks * steps)] if steps else []),
        Part(
            "loading and delivering weights",
            Place.HOST,
            _transit_bytes(spec, parameters, learnt, reference, on_gpu=on_gpu),
        ),
        Part("processes", Place.HOST, _PROCESS * processes),
        *(
            part
            for agent in list(spec.agents.values())[1:]
            for part in _proposer_parts(spec, agent, sampling=sampling, learning=learning, copies=copies)
        ),
    )


def _transit_bytes(spec: RunSpec, parameters: int, learnt: int, reference: int, *, on_gpu: bool) -> int:
    """Bytes of weights that pass through host memory: at the start, or with a delivery and a checkpoint.

    Learners read whole float32 models into it, then move or shard them. New weights pass through it whole, in the
    engines' dtype, and the two newest versions stay; an adapter passes through it twice. Shards are copied into it for
    a checkpoint.
    """
    learners, dtype = spec.learners, spec.engine.dtype
    apart = on_gpu or learners.fsdp
    loading = max(1, learners.num_learners) * (_FLOAT32 * parameters + reference) if apart else 0
    is_copied = apart or DTYPES[dtype] != _FLOAT32
    delivering = 2 * _FLOAT32 if spec.agents[SOLVER].lora_rank else (2 + is_copied) * DTYPES[dtype]
    return max(loading, (delivering + _FLOAT32 * (1 + _ADAM) * learners.fsdp) * learnt)


def _proposer_parts(spec: RunSpec, agent: AgentSpec, *, sampling: Place, learning: Place, copies: int) -> list[Part]:
    """The memory of a proposer that is a language model, without activations, which are small."""
    folder = open_model(agent.model, dialect=agent.dialect, weights=False)
    parameters, learnt = parameter_counts(checkpoint_shapes(folder.path), agent)
    needed = []
    if agent.owns_engines:
        value, ranks = bytes_per_value(spec.engine), spec.engine.tensor_parallel
        cache = ranks * folder.kv_bytes_per_token(value, ranks=ranks) * agent.context * agent.concurrent
        needed.append(Part(f"{agent.name} engine weights", sampling, value * parameters))
        needed.append(Part(f"{agent.name} engine cache", sampling, cache))
    if agent.trainable:
        frozen = parameters if agent.lora_rank or agent.training.kl else 0
        needed.append(Part(f"{agent.name} learner", learning, copies * _FLOAT32 * ((2 + _ADAM) * learnt + frozen)))
    return needed


def available() -> Available:
    """The memory of this machine, up to its container's limit, and of its GPUs."""
    import torch

    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in CGROUP_LIMITS:
        try:
            host = min(host, int(Path(name).read_text(encoding="ascii")))
        except (OSError, ValueError):  # another version of cgroups, or no limit
            continue
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return Available(host, tuple(torch.cuda.get_device_properties(place).total_memory for place in range(count)))


def shares_gpus(spec: RunSpec) -> bool:
    """Whether Ray's shares of an engine and of a learner fit on one GPU."""
    return spec.engine.num_gpus_per_engine + spec.learners.num_gpus_per_learner <= 1 + _ROUNDING


def gpu_needs(needed: Iterable[Part], spec: RunSpec, gpu: int) -> dict[str, int]:
    """What one GPU of `gpu` bytes must hold → bytes: a learner, an engine's share, and the contexts of their processes.

    Learner and engine are on one GPU if Ray's shares of them fit on one. With `engine.sleep` it is what the GPU holds
    while one of the two computes, whichever is more.
    """
    engine, learners = spec.engine, spec.learners
    own = [part for part in needed if part.place is Place.GPU and ("learner" in part.name or part.name == _REFERENCE)]
    learner = sum(part.size for part in own)
    resting = sum(part.size for part in own if not part.name.startswith(_ACTIVATIONS)) // max(1, learners.num_learners)
    on_gpu = {
        "a learner": learner // max(1, learners.num_learners) if learners.num_gpus_per_learner else 0,
        "an engine": int(engine.gpu_memory_share * gpu) if engine.num_gpus_per_engine else 0,
    }
    on_gpu = {name: size for name, size in on_gpu.items() if size}
    if not shares_gpus(spec) and on_gpu:
        largest = max(on_gpu, key=lambda name: on_gpu[name])
        on_gpu = {largest: on_gpu[largest]}
    elif engine.sleep and len(on_gpu) > 1:
        playing = {"a learner that delivers": resting + _BUFFERS, "an engine": on_gpu["an engine"]}
        learning = {"a learner": on_gpu["a learner"], "an engine asleep": 0}
        on_gpu = playing if sum(playing.values()) > sum(learning.values()) else learning
    return {**on_gpu, "contexts": _CONTEXT * len(on_gpu)} if on_gpu else {}


def check_parts(needed: Iterable[Part], there: Available, *, spec: RunSpec) -> None:
    """Raises `UserError` if memory is too small, or if engines use GPUs that Ray does not reserve."""
    engine = spec.engine
    needed = tuple(needed)
    host = _sum(needed, Place.HOST)
    if host > there.host:
        raise UserError(
            f"memory: the run needs at least {_gib(host)} of host memory, most for {_largest(needed, Place.HOST)}, and "
            f"this machine has {_gib(there.host)}; take a smaller solver.model, fewer engines or learners, or "
            "solver.lora_rank."
        )
    if not there.gpus:
        return
    if choose_kind(engine.kind) == "vllm" and not engine.num_gpus_per_engine:
        raise UserError(
            "engine.num_gpus_per_engine: 0 sets no GPU aside, and vLLM computes on this machine's; set it, and "
            "engine.gpu_memory_share if engines or learners share one."
        )
    sampling = sum(part.size for part in needed if part.place is Place.GPU and part.name.startswith("engine"))
    one, share = sampling // (engine.num_engines * engine.tensor_parallel), engine.gpu_memory_share
    if one > share * max(there.gpus):
        raise UserError(
            f"engine.gpu_memory_share: {share:g} of a GPU's {_gib(max(there.gpus))} does not hold an engine's weights, "
            f"what its steps work with and one dialogue, {_gib(one)}; raise it, or lower solver.context."
        )
    smallest = min(there.gpus)
    on_gpu = gpu_needs(needed, spec, smallest)
    if sum(on_gpu.values()) > smallest:
        listed = ", ".join(f"{_gib(size)} for {name}" for name, size in on_gpu.items())
        raise UserError(
            f"memory: a GPU needs at least {_gib(sum(on_gpu.values()))} ({listed}), and one here has {_gib(smallest)}; "
            "take more learners with learners.fsdp, a smaller solver.model, training.microbatch_tokens or "
            "engine.gpu_memory_share, solver.lora_rank or solver.gradient_checkpointing."
        )


def parameter_counts(shapes: Mapping[str, Sequence[int]], agent: AgentSpec) -> tuple[int, int]:
    """Numbers of parameters of the model, and of learning ones: all, or with LoRA r×in and out×r for each target."""
    parameters = sum(map(math.prod, shapes.values()))
    targets = tuple(f".{target}.weight" for target in LORA_TARGETS)
    adapters = sum(agent.lora_rank * sum(shape) for name, shape in shapes.items() if name.endswith(targets))
    return parameters, adapters if agent.lora_rank else parameters


def _frozen_bytes(shapes: Mapping[str, Sequence[int]], *, half: bool) -> int:
    """Bytes of a model that does not learn; embeddings and norms stay in float32."""
    parameters = sum(map(math.prod, shapes.values()))
    matrices = sum(
        math.prod(shape) for name, shape in shapes.items() if len(shape) > 1 and not name.endswith(_EMBEDDING)
    )
    return _FLOAT32 * parameters - (_FLOAT32 - _HALF) * matrices * half


def _sharded_peak(
    shapes: Mapping[str, Sequence[int]], agent: AgentSpec, activations: int, states: int, *, half: bool, learners: int
) -> int:
    """Bytes on one FSDP learner at its peak, beyond its shards: what it holds whole, and activations.

    Peaks of full training are in the backward pass of the first or last layer (gradients come while the hidden `states`
    that checkpoints keep go), at its begin without checkpoints, and at its end, when the embeddings' gradients are
    reduced in float32. PyTorch's FSDPMemTracker agrees within 5 % on the true shapes of models from 3 to 8 billion
    parameters.
    """
    width = _HALF if half else _FLOAT32
    layers = Counter[str]()
    for name, shape in shapes.items():
        if (place := re.search(r"layers\.(\d+)\.", name)) is not None:
            layers[place[1]] += math.prod(shape)
    parameters, layer = sum(map(math.prod, shapes.values())), max(layers.values(), default=0)
    outside = parameters - layers.total()
    is_tied = not any(name.endswith("lm_head.weight") for name in shapes)
    output = outside if is_tied else outside // 2
    if agent.lora_rank:  # nothing large has a gradient
        return width * (output + 3 * layer) + activations
    missing, last = _FLOAT32 * outside // learners, 3 if is_tied else 4
    at_end = (last * width + _FLOAT32) * output - missing
    if agent.gradient_checkpointing:
        activations -= min(states, _FLOAT32 * layers.total() // learners)
        return max(width * (3 * output + 3 * layer) + _FLOAT32 * layer + activations - missing, at_end)
    return max(5 * width * output + activations - _FLOAT32 * parameters // learners, at_end)


def bytes_per_value(engine: EngineSection) -> int:
    """Bytes of one of an engine's weights."""
    return DTYPES[choose_dtype(engine.dtype, on_gpu=bool(engine.num_gpus_per_engine))]


def _activations(model: ModelFolder, solver: AgentSpec, training: TrainingSection, *, on_gpu: bool) -> int:
    """Bytes of one micro-batch on one learner, without logits."""
    width, layers = (int(model.config[key]) for key in ("hidden_size", "num_hidden_layers"))
    heads = int(model.config["num_attention_heads"])
    head_width = int(model.config.get("head_dim") or width // heads)
    keys = head_width * int(model.config.get("num_key_value_heads") or heads)
    half = choose_dtype(solver.dtype, on_gpu=on_gpu) == "bfloat16"
    # Two norms, which keep a copy in float32, queries, keys and values, the output of attention, and the four products
    # of the MLP. The backward pass of a layer holds half as much again.
    norms = 10 if half else 6
    layer_values = norms * width + 2 * head_width * heads + 2 * keys + 4 * int(model.config["intermediate_size"])
    if solver.gradient_checkpointing:
        kept = layers * width + (3 * layer_values // 2 if half else 7 * layer_values // 4)
    else:
        kept = layers * layer_values + (12 * width if half else layer_values)
    return _tokens(training, solver) * kept * DTYPES[choose_dtype(solver.dtype, on_gpu=on_gpu)]


def _logits(model: ModelFolder, training: TrainingSection, solver: AgentSpec) -> int:
    """Bytes of the logits of a chunk, their softmax and their gradient."""
    vocabulary = int(model.config["vocab_size"])
    return 3 * _FLOAT32 * min(_tokens(training, solver), chunk_tokens(vocabulary)) * vocabulary


def _tokens(training: TrainingSection, solver: AgentSpec) -> int:
    """Tokens of one micro-batch."""
    return min(training.microbatch_tokens, training.groups * training.group_size * solver.context)


def _cache(model: ModelFolder, engine: EngineSection, solver: AgentSpec) -> int:
    """Bytes of the cache of one rank of an engine."""
    ranks = engine.tensor_parallel
    bytes_per_token = model.kv_bytes_per_token(bytes_per_value(engine), ranks=ranks)
    if engine.num_gpus_per_engine:
        return dialogue_cache_bytes(solver.context, bytes_per_token)
    return cache_bytes(solver.context, engine.concurrent * engine.cache_share, bytes_per_token, ranks=ranks)


def _sum(needed: Iterable[Part], place: Place) -> int:
    return sum(part.size for part in needed if part.place is place)


def _largest(needed: Iterable[Part], place: Place) -> str:
    part = max((part for part in needed if part.place is place), key=lambda part: part.size)
    return f"{part.name} ({_gib(part.size)})"


def _gib(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
