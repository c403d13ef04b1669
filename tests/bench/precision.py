"""What bfloat16 costs on this CPU, against float32: `python -m tests.bench.precision`.

SmolLM2-135M as downloaded, on all cores: a learner's forward and backward pass over a row, in mixed precision, and an
engine's forward pass over one token of each of several rows, with weights of the type.
"""

import os
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from policies.engine.choice import choose_dtype
from policies.models import open_model

MODEL = "smollm2-135m"
TOKENS, ROWS, TIMES = 128, 32, 3


def main() -> None:
    torch.set_num_threads(os.cpu_count() or 1)
    first: tuple[float, float] | None = None
    for dtype in ("float32", "bfloat16"):
        learning, sampling = (
            _seconds(partial(_learn, _load("float32"), dtype)),
            _seconds(partial(_sample, _load(dtype))),
        )
        first = first or (learning, sampling)
        print(
            f"{dtype}: {learning:.2f} s to learn {TOKENS} tokens ({learning / first[0]:.2f}), {sampling:.3f} s for a "
            f"token of {ROWS} rows ({sampling / first[1]:.2f}); a run takes {choose_dtype(dtype, on_gpu=False)} here",
            flush=True,
        )
    print(f"medians of {TIMES}, and in brackets how many times as long as float32")


def _load(dtype: str) -> Any:
    return AutoModelForCausalLM.from_pretrained(open_model(MODEL).path, dtype=getattr(torch, dtype))


def _learn(model: Any, dtype: str) -> None:
    ids_1T = torch.arange(TOKENS)[None]
    with torch.autocast("cpu", getattr(torch, dtype), enabled=dtype != "float32"):
        loss = model(input_ids=ids_1T, labels=ids_1T).loss
    loss.backward()
    model.zero_grad()


@torch.inference_mode()
def _sample(model: Any) -> None:
    model(input_ids=torch.arange(ROWS)[:, None])


def _seconds(compute: Callable[[], None]) -> float:
    compute()
    took = []
    for _ in range(TIMES):
        begun = time.perf_counter()
        compute()
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


if __name__ == "__main__":
    main()
