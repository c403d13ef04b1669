"""Attention over shared tokens on a GPU: what the kernel sees, and that gradients are as exact as of separate rows."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from seal_ray.grpo import attention
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.packing import Packed, collate, lay_out
from tests.seal_ray.grpo.models import alone, dense_mask, random_group, tiny_model

KINDS = ("qwen2", "llama", "qwen3")


@pytest.mark.parametrize("times", [1, 2])
def test_the_kernel_is_attention_with_the_dense_mask(times: int) -> None:
    segments = lay_out([random_group(4, 5, opening=200), random_group(5, 1, opening=9)]).segments
    length = segments[-1].end
    generator = torch.Generator().manual_seed(0)
    query, key, value, upstream = (
        torch.randn(1, heads, length, 64, generator=generator).bfloat16() for heads in (2 * times, 2, 2, 2 * times)
    )
    mask = dense_mask(segments)

    def outcome(attend: Any, device: str) -> list[Tensor]:
        inputs = [each.detach().to(device).requires_grad_() for each in (query, key, value)]
        out = attend(*inputs)
        out.backward(upstream.transpose(1, 2).to(out))
        return [each.float().cpu() for each in (out.detach(), *(given.grad for given in inputs))]

    def dense(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        key, value = (each.repeat_interleave(times, dim=1).float() for each in (key, value))
        return functional.scaled_dot_product_attention(query.float(), key, value, attn_mask=mask).transpose(1, 2)

    def on_gpu(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention.attend(nn.Identity(), query, key, value, None, segments=segments)[0]

    for found, right in zip(outcome(on_gpu, "cuda"), outcome(dense, "cpu"), strict=True):
        assert float((found - right).norm() / right.norm()) < 1e-2


def gradients(model: Any, packed: Packed, device: str, *, half: bool) -> dict[str, Tensor]:
    model = model.to(device)
    model.set_attn_implementation(attention.choose_attention(model.config, torch.device(device), half=half))
    model.zero_grad()
    packed = packed.to(device)
    with torch.autocast(device, torch.bfloat16, enabled=half):
        logprobs_M = token_logprobs(model, packed)
    (logprobs_M * packed.advantages_M).sum().backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.double().cpu() for name, p in model.named_parameters() if p.grad is not None}


def error(found: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """Of all gradients together, relative."""
    assert found.keys() == expected.keys()
    off = sum(float((found[name] - expected[name]).square().sum()) for name in expected)
    return math.sqrt(off / sum(float(each.square().sum()) for each in expected.values()))


@pytest.mark.parametrize("opening", [50, 3000])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_as_exact_as_those_of_separate_rows(kind: str, opening: int) -> None:
    rows = random_group(opening, 8, opening=opening)
    exact = gradients(tiny_model(kind), collate([rows]), "cpu", half=False)
    model: Any = tiny_model(kind)
    model = model.float()
    shared, apart = (error(gradients(model, collate(each), "cuda", half=True), exact) for each in ([rows], alone(rows)))
    assert shared < 0.1
    assert shared < 1.5 * apart + 1e-3


def test_float32_is_computed_by_pytorchs_attention() -> None:
    rows = random_group(1, 4, opening=40)
    exact = gradients(tiny_model("qwen2"), collate([rows]), "cpu", half=False)
    model: Any = tiny_model("qwen2")
    assert attention.choose_attention(model.config, torch.device("cuda"), half=False) == "sdpa"
    found = gradients(model.float(), collate(alone(rows)), "cuda", half=False)
    assert error(found, exact) < 1e-3
