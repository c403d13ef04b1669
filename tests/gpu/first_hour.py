"""`python -m tests.gpu.first_hour`: what a GPU does with a learner's steps, in minutes. `--cpu` rehearses it, smaller.

It needs PyTorch, Transformers and pydantic alone, and prints a table for docs/gpu.md: exactness of gradients over
shared tokens, weights handed to another process, checksums, and the speed and memory of a layer stack of Qwen2.5-7B's
shape.
"""

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.multiprocessing as mp
from transformers import Qwen2Config, Qwen2ForCausalLM

from policies.engine.buckets import SharedBuffer, checksum, open_buffer
from seal_ray.grpo.attention import choose_attention
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.packing import collate
from seal_ray.grpo.rows import Row, make_row

SHAPE = {"hidden_size": 3584, "intermediate_size": 18_944, "num_attention_heads": 28, "num_key_value_heads": 4}
SMALL = {"hidden_size": 128, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2}
PEAK = 989e12
"""FLOPs a second of an H100 or H200 in bfloat16, without sparsity."""
GROUP = 8
VOCABULARY = 1500
"""The smallest vocabulary for `rows_of`."""


def rows_of(opening: int, rest: int) -> list[Row]:
    """Random rows that share an opening; all of the rest is sampled."""
    numbers = np.random.default_rng(opening)
    shared = numbers.integers(2, VOCABULARY, opening)
    mask = np.arange(opening + rest) >= opening
    sampled = np.full(opening + rest, -7.3)
    return [
        make_row(np.concatenate([shared, numbers.integers(2, VOCABULARY, rest)]), mask, sampled, (-1.0) ** number)
        for number in range(GROUP)
    ]


def make_model(shape: dict[str, int], layers: int, vocabulary: int, device: str) -> Any:
    torch.manual_seed(0)
    config = Qwen2Config(**shape, num_hidden_layers=layers, vocab_size=vocabulary, tie_word_embeddings=False)
    with torch.device(device):
        model = Qwen2ForCausalLM(config)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def learn(model: Any, groups: Sequence[Sequence[Row]], device: str, *, half: bool) -> None:
    """Forward and backward pass over the groups, as the learner does them."""
    model.set_attn_implementation(choose_attention(model.config, torch.device(device), half=half))
    model.zero_grad(set_to_none=True)
    packed = collate(groups).to(torch.device(device))
    with torch.autocast(device, torch.bfloat16, enabled=half):
        logprobs_M = token_logprobs(model, packed)
    (logprobs_M * packed.advantages_M).mean().backward()  # type: ignore[no-untyped-call]


def gradient_errors(device: str) -> tuple[float, float]:
    """Relative errors of bfloat16 gradients over shared tokens, and over separate rows, against float32 on the CPU."""
    rows = rows_of(300, 40)

    def gradient(groups: Sequence[Sequence[Row]], where: str, *, half: bool) -> torch.Tensor:
        model = make_model(SMALL, 2, VOCABULARY, "cpu").to(where)
        learn(model, groups, where, half=half)
        return torch.cat([parameter.grad.float().flatten().cpu() for parameter in model.parameters()])

    exact = gradient([rows], "cpu", half=False)
    shared = gradient([rows], device, half=True)
    apart = gradient([[row] for row in rows], device, half=True)
    return float((shared - exact).norm() / exact.norm()), float((apart - exact).norm() / exact.norm())


def receive(sent: Any, proven: Any, device: str, gpu: int) -> None:
    """The other process, an engine that has this GPU alone: it opens the sender's buffers and compares checksums."""
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[gpu]
    while (message := sent.get()) is not None:
        handle, shapes, dtype, expected = message
        proven.put(len(open_buffer(handle, shapes, dtype, expected, torch.device(device, 0))))


def hand_over(size: int, device: str, gpu: int = 0) -> Iterator[tuple[str, str]]:
    """Hands `size` bytes of the first GPU to a process with another `gpu`, by a handle of CUDA; on a CPU by a file."""
    tensor = torch.randn(size // 2, device=device).bfloat16()
    context = mp.get_context("spawn")
    sent, proven = context.Queue(), context.Queue()
    process = context.Process(target=receive, args=(sent, proven, device, gpu), daemon=True)
    process.start()
    for part in (tensor[:2], tensor):  # its start does not count
        started = time.perf_counter()
        shared = SharedBuffer({"weight": part})
        sent.put((shared.handle, {"weight": tuple(part.shape)}, "bfloat16", shared.checksum))
        proven.get(timeout=300)  # the other process raises and ends if it has got other weights
        seconds = time.perf_counter() - started
    sent.put(None)
    process.join()
    yield f"{size >> 20} MiB proven in another process" + " on another GPU" * gpu, f"{seconds:.2f} s"
    yield "checksum", f"{size / timed(lambda: checksum(tensor), device) / 1e9:.1f} GB/s"


def timed(step: Callable[[], object], device: str) -> float:
    """Seconds of the fastest of three steps, after one that does not count."""
    best = math.inf
    for number in range(4):
        started = time.perf_counter()
        step()
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started) if number else best
    return best


def learner_speed(
    shape: dict[str, int], layers: int, opening: int, rest: int, device: str
) -> Iterator[tuple[str, str]]:
    """One group of a layer stack: tokens a second, the share of the peak FLOPs, and memory."""
    vocabulary = 152_064 if device == "cuda" else VOCABULARY
    model, rows = make_model(shape, layers, vocabulary, device), rows_of(opening, rest)
    seconds = timed(lambda: learn(model, [rows], device, half=True), device)
    laid_out, sampled = opening + GROUP * rest, GROUP * rest
    weights = sum(parameter.numel() for parameter in model.model.layers.parameters())
    attended = opening**2 / 2 + sampled * (opening + rest / 2)
    # Forward, backward, and the forward pass again of checkpointed layers: 2 + 4 + 2 FLOPs a weight and token.
    flops = 8 * (weights * laid_out + 2 * layers * shape["hidden_size"] * attended)
    flops += 6 * vocabulary * shape["hidden_size"] * sampled
    yield f"learner, {layers} layers, {opening} + {GROUP} × {rest} tokens", f"{laid_out / seconds:,.0f} tokens/s"
    yield "the same, sampled tokens of all rows as if apart", f"{GROUP * (opening + rest) / seconds:,.0f} tokens/s"
    if device == "cuda":
        yield "share of the peak FLOPs", f"{flops / seconds / PEAK:.0%}"
        yield "peak memory", f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpu", action="store_true", help="on the CPU, smaller")
    on_cpu = parser.parse_args().cpu
    device, shape = ("cpu", SMALL) if on_cpu else ("cuda", SHAPE)
    print("| what | measured |\n| --- | --- |")
    print(f"| device | {'CPU' if on_cpu else torch.cuda.get_device_name()}, PyTorch {torch.__version__} |")
    shared, apart = gradient_errors(device)
    print(f"| relative error of gradients, shared tokens and separate rows | {shared:.4f}, {apart:.4f} |")
    for gpu in range(1 if on_cpu else min(2, torch.cuda.device_count())):
        for row in hand_over((64 << 20) if on_cpu else (4 << 30), device, gpu):
            print("| " + " | ".join(row) + " |", flush=True)
    sizes = (2, 300, 40) if on_cpu else (4, 3072, 512)
    for row in learner_speed(shape, *sizes, device):
        print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
