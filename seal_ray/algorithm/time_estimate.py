"""Estimates of the seconds of a round on GPUs, by phase, from the work of each and the speed of a GPU.

They are for plans: half of it or twice as much is possible. The constants below are assumptions.
"""

import math
from dataclasses import dataclass

from envs.roles import SOLVER
from policies.engine.requests import checkpoint_shapes
from policies.models import ModelFolder
from seal_ray.algorithm.memory_estimate import bytes_per_value, parameter_counts, shares_gpus
from seal_ray.config.resolve import RunSpec

GPU, FLOPS, _BANDWIDTH = "H100", 989e12, 3.35e12
"""A GPU's name and its peak: products in bfloat16 a second, and bytes of memory read a second."""
_OPENING, _COMPLETION, _RESULT = 5000, 60, 80
"""Tokens of a dialogue's opening, of a completion, and of the results after it, on the benchmark."""
_COMPLETIONS = 12
"""Completions of a dialogue on average; the longest has `solver.steps`."""
_READING, _SAMPLING, _LEARNING = 0.4, 0.6, 0.35
"""Shares of the peak that are reached: of products when prompts are read and in learning, of bandwidth in sampling."""
_STEP = 0.005
"""Seconds of an engine's step beyond its reading of memory."""
_BY_FILE, _BY_BUCKETS, _DISK = 0.5e9, 5e9, 1e9
"""Bytes a second of a delivery with its proof, by a file in memory or by buffers on GPUs, and of a machine's disk."""


@dataclass(frozen=True, slots=True)
class RoundPhase:
    """The seconds of a phase of a round, and the formula behind them."""

    name: str
    seconds: float
    formula: str


def round_phases(spec: RunSpec, model: ModelFolder) -> tuple[RoundPhase, ...]:
    """The phases of a round, the whole round last; none if engines or learners are on CPUs."""
    engine, training, solver, learners = spec.engine, spec.training, spec.agents[SOLVER], spec.learners
    if not (engine.num_gpus_per_engine and learners.num_gpus_per_learner):
        return ()
    parameters, learnt = parameter_counts(checkpoint_shapes(model.path), solver)
    rollouts = training.groups * training.group_size
    opening = min(_OPENING, solver.prompt)
    read, rest = _COMPLETIONS * _RESULT, _COMPLETIONS * (_COMPLETION + _RESULT)

    ranks = engine.tensor_parallel
    dialogues = min(engine.concurrent, math.ceil(rollouts / engine.num_engines))
    waves = math.ceil(rollouts / (engine.num_engines * dialogues))
    value = bytes_per_value(engine)
    cache = dialogues * (opening + rest) * model.kv_bytes_per_token(value, ranks=ranks)
    step = (value * parameters / ranks + cache) / (_BANDWIDTH * _SAMPLING) + _STEP
    samples = waves * (solver.steps or _COMPLETIONS) * _COMPLETION
    prompts = training.groups * opening + rollouts * read
    reading = 2 * parameters * prompts / (engine.num_engines * ranks * FLOPS * _READING)

    rows = training.groups * opening + rollouts * rest
    passes = 4 if solver.lora_rank else 6  # gradients of weights that do not learn are left out
    passes += 2 * solver.gradient_checkpointing + 2 * bool(training.kl)
    learning = training.epochs * passes * parameters * rows / (learners.num_learners * FLOPS * _LEARNING)
    copies = bool(training.staleness)  # kept on the host, for engines that restart
    speed = _BY_FILE if solver.lora_rank else _BY_BUCKETS / (1 + copies)
    delivery = value * learnt / speed
    checkpoint = (12 * learnt + value * parameters) / _DISK / training.checkpoint_every
    playing = reading + samples * step
    at_once = training.staleness and not shares_gpus(spec)
    both = max(playing, learning) if at_once else playing + learning
    return (
        RoundPhase(
            "reading prompts",
            reading,
            f"2 × {parameters / 1e9:.1f}e9 weights × {prompts:,} tokens / "
            f"({engine.num_engines * ranks} GPUs × {_READING:g} of {FLOPS / 1e12:g}e12 FLOPs)",
        ),
        RoundPhase(
            "sampling", samples * step, f"{samples:,} steps of {1000 * step:.0f} ms, {dialogues} dialogues in each"
        ),
        RoundPhase(
            "learning",
            learning,
            f"{passes} × {parameters / 1e9:.1f}e9 weights × {training.epochs * rows:,} tokens / "
            f"({learners.num_learners} GPUs × {_LEARNING:g} of {FLOPS / 1e12:g}e12 FLOPs)",
        ),
        RoundPhase("delivery", delivery, f"{value * learnt / 1e9:.2f} GB at {speed / 1e9:g} GB a second"),
        RoundPhase(
            "checkpoints", checkpoint, f"one in {training.checkpoint_every} rounds, {_DISK / 1e9:g} GB a second"
        ),
        RoundPhase(
            "all",
            both + delivery + checkpoint,
            "learning while the next round is played" if at_once else "one after the other",
        ),
    )
