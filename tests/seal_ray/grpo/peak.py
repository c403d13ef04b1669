"""The most memory that one micro-batch of the tiny model takes: `python -m tests.seal_ray.grpo.peak OPENING,REST …`.

Prints, for each pair, bytes above what the process held before: eight rows, forward and backward pass, in a process of
its own. `OPENING,REST,checkpoints` is with checkpoints of activations.
"""

import os
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from policies.models import open_model
from seal_ray.grpo.attention import choose_attention
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.packing import collate, make_row

GROUP = 8


def highest() -> int:
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmHWM:"))


def step(model: torch.nn.Module, opening: int, rest: int) -> None:
    numbers = np.random.default_rng(0)
    shared, mask = numbers.integers(2, 1500, opening), np.arange(opening + rest) >= opening
    rows = [
        make_row(np.concatenate([shared, numbers.integers(2, 1500, rest)]), mask, np.zeros(len(mask)), 1.0)
        for _ in range(GROUP)
    ]
    token_logprobs(model, collate([rows])).sum().backward()  # type: ignore[no-untyped-call]


def measure(opening: int, rest: int, *, checkpoints: bool) -> int:
    model = AutoModelForCausalLM.from_pretrained(open_model("tiny").path, dtype=torch.float32)
    model.set_attn_implementation(choose_attention(model.config, torch.device("cpu"), half=False))
    if checkpoints:
        model.train().gradient_checkpointing_enable({"use_reentrant": False})
    step(model, 8, 8)  # gradients are there, and what kernels set up once
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is what there is now
    before = highest()
    step(model, opening, rest)
    return highest() - before


def main() -> None:
    for asked in sys.argv[1:]:
        opening, rest, *more = asked.split(",")
        # Imported once for all of them; nothing has been computed here, so that no thread is left out of the fork.
        if (child := os.fork()) == 0:
            print(measure(int(opening), int(rest), checkpoints=more == ["checkpoints"]), flush=True)
            os._exit(0)
        if os.waitpid(child, 0)[1]:
            sys.exit(f"{asked}: the process that measured it failed")


if __name__ == "__main__":
    main()
