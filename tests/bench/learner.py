"""The learner against TRL's: `make bench` installs TRL next to the project and runs this.

One group of eight rows with a common opening, the clipped loss by tokens without a KL, the forward and the backward
pass. TRL's trainer computes a padded batch of eight; the rows are of one length, so that its batch has no padding. Both
are measured in turn, several times, and the best times are compared. The tiny model in float32 on a CPU; with
`--device cuda` in mixed precision, with the peaks of memory, and with any model: `--model smollm2-135m`.
"""

import argparse
import contextlib
import io
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from policies.models import open_model
from seal_ray.grpo.attention import choose_attention
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.losses import GRPOLoss, global_mean
from seal_ray.grpo.packing import collate, pack
from seal_ray.grpo.rows import Row
from tests.gpu.first_hour import GROUP, rows_of

SHAPES = ((133, 134, 1.6), (1024, 384, 3.0), (3072, 512, 4.0))
"""Tokens of the opening and of the rest, and the goal for the ratio."""
BUDGET = 16_384
REPEATS = 5


def ours(rows: Sequence[Row], folder: Path, device: str) -> Callable[[], float]:
    """Forward and backward pass as the learner does them."""
    half = device == "cuda"
    model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model = model.to(device)
    model.set_attn_implementation(choose_attention(model.config, torch.device(device), half=half))
    model.train()
    loss_of = GRPOLoss(GRPOLoss.Settings(kl=0.0, dual_clip=None))
    tokens = sum(row.sampled_tokens for row in rows)

    def step() -> float:
        model.zero_grad(set_to_none=True)
        total = 0.0
        for batch in pack([rows], BUDGET):
            packed = collate(batch).to(device)
            with torch.autocast(device, torch.bfloat16, enabled=half):
                logprobs_M = token_logprobs(model, packed)
            losses = loss_of(logprobs_M, packed.sampled_logprobs_M, packed.advantages_M)
            loss = global_mean(losses.loss_sum, tokens)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss)
        return total

    return step


def trl(rows: Sequence[Row], folder: Path, device: str) -> Callable[[], float]:
    """The same by TRL's GRPO trainer."""
    from datasets import Dataset  # type: ignore[import-not-found]
    from datasets.table import InMemoryTable  # type: ignore[import-not-found]
    from trl import GRPOConfig, GRPOTrainer  # type: ignore[import-not-found]

    config = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        use_cpu=device == "cpu",
        bf16=device == "cuda",
        beta=0.0,
        loss_type="dapo",
        per_device_train_batch_size=GROUP,
        num_generations=GROUP,
        gradient_checkpointing=False,
        report_to=[],
    )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda **given: [0.0] * len(given["prompts"]),
        args=config,
        # The fingerprint is given: making one cannot pickle newer pyarrows.
        train_dataset=Dataset(InMemoryTable.from_pydict({"prompt": ["none"] * GROUP}), fingerprint="none"),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    trainer.current_gradient_accumulation_steps = 1
    model = trainer.model.train()
    opening = int(rows[0].mask_T.argmax())
    ids = torch.from_numpy(np.stack([row.token_ids_T for row in rows])).to(device)
    old = torch.from_numpy(np.stack([row.sampled_logprobs_T for row in rows])).to(device)
    inputs = {
        "prompt_ids": ids[:, :opening],
        "prompt_mask": torch.ones_like(ids[:, :opening]),
        "completion_ids": ids[:, opening:],
        "completion_mask": torch.ones_like(ids[:, opening:]),
        "old_per_token_logps": old[:, opening:],
        "advantages": torch.tensor([row.advantage for row in rows], dtype=torch.float32, device=device),
        "num_items_in_batch": torch.tensor(sum(row.sampled_tokens for row in rows), device=device),
    }

    def step() -> float:
        model.zero_grad(set_to_none=True)
        loss = trainer.compute_loss(model, inputs)
        trainer.accelerator.backward(loss)
        return float(loss)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    given = parser.parse_args()
    folder, device = open_model(given.model).path, given.device
    warnings.simplefilter("ignore")
    torch.set_num_threads(os.cpu_count() or 1)
    for opening, rest, goal in SHAPES:
        rows = rows_of(opening, rest)
        with contextlib.redirect_stderr(io.StringIO()):
            steps = {"ours": ours(rows, folder, device), "trl": trl(rows, folder, device)}
        losses = {name: step() for name, step in steps.items()}  # warms up
        assert abs(losses["ours"] - losses["trl"]) < (1e-3 if device == "cpu" else 2e-2), losses
        times: dict[str, list[float]] = {name: [] for name in steps}
        peaks = {name: _peak(step) for name, step in steps.items()} if device == "cuda" else {}
        for _ in range(REPEATS):
            for name, step in steps.items():
                started = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - started)
        best = {name: min(values) for name, values in times.items()}
        spread = statistics.median(each / mine for each, mine in zip(times["trl"], times["ours"], strict=True))
        bound = GROUP * (opening + rest) / (opening + GROUP * rest)
        print(
            f"opening {opening}, rest {rest}: ours {best['ours']:.3f} s, TRL {best['trl']:.3f} s: "
            f"{best['trl'] / best['ours']:.2f} times as fast (median {spread:.2f}; goal {goal:g}; tokens {bound:.2f})"
            + "".join(f"; {name} holds {peak / 2**20:.0f} MiB more at its peak" for name, peak in peaks.items()),
            flush=True,
        )


def _peak(step: Callable[[], float]) -> int:
    """Bytes of GPU memory that a step takes above what is held before it."""
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    return torch.cuda.max_memory_allocated() - before


if __name__ == "__main__":
    main()
