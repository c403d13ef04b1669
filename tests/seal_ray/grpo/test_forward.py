"""The forward pass: packed rows do not see each other, and only what is needed is held."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Any

import pytest
import torch

from seal_ray.grpo import attention, forward
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.packing import collate
from tests.seal_ray.grpo.models import random_rows, tiny_model


@pytest.mark.parametrize("checkpoints", [False, True], ids=["", "checkpoints"])
@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_packed_rows_do_not_see_each_other(kind: str, implementation: str, training: bool, checkpoints: bool) -> None:
    model: Any = tiny_model(kind, attention=implementation).train(training)
    if checkpoints:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    rows = random_rows(5)
    packed = collate(rows)
    together_M = token_logprobs(model, packed)
    alone_M = torch.cat([token_logprobs(model, collate([row])) for row in rows])
    # Eager attention takes its softmax in float32, whatever the model is in.
    tolerance = 1e-10 if implementation == "sdpa" else 1e-4
    torch.testing.assert_close(together_M, alone_M, rtol=tolerance, atol=tolerance)

    # Were the rows one text to the model, this would show it.
    length = packed.token_ids_1N.shape[1]
    leaking = dataclasses.replace(packed, position_ids_1N=torch.arange(length)[None])
    differs = (token_logprobs(model, leaking) - alone_M).abs()[packed.row_M > 0]
    assert (differs > 1e-2).float().mean() > 0.8


def test_rows_of_one_token_are_rows_too() -> None:
    model = tiny_model("qwen2")
    rows = random_rows(6, (5, 6))
    fields = ("token_ids_T", "mask_T", "sampled_logprobs_T")
    single = dataclasses.replace(rows[0], **{name: getattr(rows[0], name)[:1] for name in fields})
    together_M = token_logprobs(model, collate([single, single, rows[0], single, rows[1]]))
    torch.testing.assert_close(together_M, token_logprobs(model, collate(rows)), rtol=1e-10, atol=1e-10)
    assert len(token_logprobs(model, collate([single]))) == 0


def test_log_probs_are_at_least_float32_and_normalised_at_the_temperature() -> None:
    packed = collate(random_rows(7))
    assert token_logprobs(tiny_model("llama").to(torch.bfloat16), packed).dtype == torch.float32  # type: ignore[arg-type]
    model: Any = tiny_model("llama")
    logits_NV = model(input_ids=packed.token_ids_1N, position_ids=packed.position_ids_1N, use_cache=False).logits[0]
    expected_M = (logits_NV / 0.5).log_softmax(-1)[packed.predicts_M, packed.targets_M]
    torch.testing.assert_close(token_logprobs(model, packed, temperature=0.5), expected_M)


def test_chunks_bound_the_logits_that_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = tiny_model("llama")
    packed = collate(random_rows(8, (40, 40)))
    seen: list[int] = []
    model.get_output_embeddings().register_forward_hook(lambda _module, _inputs, output: seen.append(len(output)))
    monkeypatch.setattr(forward, "CHUNK", 10)
    saved: list[torch.Size] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        saved.append(tensor.shape)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        token_logprobs(model, packed)
    assert sum(seen) == len(packed.targets_M) < packed.token_ids_1N.shape[1]
    assert max(seen) == 10
    assert not [shape for shape in saved if shape[-1:] == (100,) and len(shape) == 2 and shape[0] != 32]


@pytest.mark.parametrize(
    ("cuda", "installed", "expected"),
    [
        (True, True, "flash_attention_2"),
        (True, False, "sdpa"),
        (False, True, "sdpa"),
    ],
)
def test_flash_attention_needs_a_gpu_and_the_package(
    cuda: bool, installed: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed or None)
    assert attention.choose_attention() == expected
