"""Packed and unpacked, full and LoRA: loss and gradient are those of the plain reference."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from torch import Tensor, nn

from seal_ray.grpo import forward
from seal_ray.grpo.attention import SEGMENTS
from seal_ray.grpo.forward import token_logprobs
from seal_ray.grpo.losses import GRPOLoss, LossSums, global_mean
from seal_ray.grpo.packing import collate
from seal_ray.grpo.rows import Row
from tests.seal_ray.grpo.models import VOCABULARY, random_rows, tiny_model, with_adapter
from tests.seal_ray.grpo.reference import batch_loss, scores

TEMPERATURE = 0.7
SETTINGS = {
    "recipe": GRPOLoss.Settings(kl=0.05),
    "dual clip": GRPOLoss.Settings(kl=0.05, dual_clip=1.5, clip_low=0.3),
    "importance": GRPOLoss.Settings(kl=0.05, importance_cap=1.3),
    "bare": GRPOLoss.Settings(kl=0.0, dual_clip=None),
}
TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-4}


class Case:
    """A model, its reference, and rows whose sampling log-probs differ from the model's by enough to clip."""

    def __init__(self, kind: str, *, lora: bool, seed: int = 3) -> None:
        base = tiny_model(kind, attention="sdpa")
        self.model: nn.Module = with_adapter(base) if lora else base
        self.frozen = tiny_model(kind, attention="sdpa", seed=int(not lora))
        numbers = np.random.default_rng(seed)
        self.rows: list[Row] = []
        self.proximal: list[list[float]] = []
        with torch.no_grad():
            for row in random_rows(seed):
                current = np.array([float(score) for score in scores(self.model, row, TEMPERATURE)])
                sampled_logprobs_T = row.sampled_logprobs_T.copy()
                sampled_logprobs_T[row.mask_T] = current + numbers.normal(0, 0.7, len(current))
                self.rows.append(replace(row, sampled_logprobs_T=sampled_logprobs_T))
                self.proximal.append(list(current + numbers.normal(0, 0.3, len(current))))
            self.reference = [[float(s) for s in scores(self.frozen, row, TEMPERATURE)] for row in self.rows]

    def expected(self, settings: GRPOLoss.Settings) -> tuple[float, dict[str, Tensor]]:
        """Loss and gradients by the reference, in float64."""
        model = copy.deepcopy(self.model)
        loss = batch_loss(model, self.rows, settings, TEMPERATURE, self.reference, self.proximal)
        return loss.item(), gradients(model, loss)

    def found(
        self,
        settings: GRPOLoss.Settings,
        bins: Sequence[Sequence[int]],
        dtype: torch.dtype,
        *,
        checkpoints: bool = False,
    ) -> tuple[float, dict[str, Tensor], LossSums]:
        """Loss and gradients over bins of rows, one micro-batch each."""
        model: Any = copy.deepcopy(self.model).to(dtype)
        if checkpoints:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        frozen = copy.deepcopy(self.frozen).to(dtype)
        for each in (model, frozen):
            with_segments(each)
        tokens = sum(row.sampled_tokens for row in self.rows)
        losses, sums = [], LossSums()
        for each in bins:
            packed = collate([[self.rows[index]] for index in each])
            with torch.no_grad(), adapter_off(model):
                reference_M = token_logprobs(
                    model if isinstance(model, PeftModel) else frozen, packed, temperature=TEMPERATURE
                )
            logprobs_M = token_logprobs(model, packed, temperature=TEMPERATURE)
            assert logprobs_M.dtype == dtype
            losses_M = GRPOLoss(settings)(
                logprobs_M,
                packed.sampled_logprobs_M,
                packed.advantages_M,
                reference_logprobs_M=reference_M,
                proximal_logprobs_M=torch.tensor([value for index in each for value in self.proximal[index]]),
            )
            losses.append(global_mean(losses_M.loss_sum, tokens))
            sums += losses_M.sums
        loss = torch.stack(losses).sum()
        assert sums.tokens == tokens
        assert sums.loss / tokens == pytest.approx(loss.item(), rel=1e-5)
        return loss.item(), gradients(model, loss), sums


def with_segments(model: Any) -> None:
    """Has a model, or what an adapter is on, use the attention over segments."""
    base: Any = model.get_base_model() if isinstance(model, PeftModel) else model
    base.set_attn_implementation(SEGMENTS)


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    loss.backward()  # type: ignore[no-untyped-call]
    return {name: p.grad.double() for name, p in model.named_parameters() if p.grad is not None}


@contextlib.contextmanager
def adapter_off(model: Any) -> Iterator[None]:
    with model.disable_adapter() if isinstance(model, PeftModel) else contextlib.nullcontext():
        yield


def assert_equal(
    found: tuple[float, dict[str, Tensor]], expected: tuple[float, dict[str, Tensor]], tolerance: float
) -> None:
    assert found[0] == pytest.approx(expected[0], rel=tolerance)
    assert found[1].keys() == expected[1].keys()
    whole = torch.stack([gradient.norm() for gradient in expected[1].values()]).norm()
    assert whole > 1e-3
    for name, gradient in expected[1].items():
        # A tensor whose gradient is next to nothing is held against a thousandth of the whole.
        assert (found[1][name] - gradient).norm() <= tolerance * (gradient.norm() + 1e-3 * whole), name


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_packed_and_unpacked_equal_the_reference(kind: str, lora: bool, name: str) -> None:
    case, settings = Case(kind, lora=lora), SETTINGS[name]
    expected = case.expected(settings)
    everything = range(len(case.rows))
    for dtype, tolerance in TOLERANCE.items():
        for bins in ([list(everything)], [[index] for index in everything], [[3, 0], [4, 2, 1]]):
            loss, gradient, sums = case.found(settings, bins, dtype)
            assert_equal((loss, gradient), expected, tolerance)
            assert sums.clipped_low
            assert sums.clipped_high
            assert (sums.clipped_dual > 0) == (name == "dual clip")
            assert 0 < sums.capped < sums.tokens if name == "importance" else sums.capped == 0


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("kind", ["qwen2", "llama"])
def test_checkpoints_and_chunks_change_nothing(kind: str, lora: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    case, settings = Case(kind, lora=lora), SETTINGS["recipe"]
    monkeypatch.setattr(forward, "LOGITS", 4 * 4 * VOCABULARY)
    loss, gradient, _ = case.found(settings, [[0, 1, 2, 3, 4]], torch.float64, checkpoints=True)
    assert_equal((loss, gradient), case.expected(settings), 1e-8)


def test_an_adapter_leaves_the_base_without_gradient() -> None:
    case = Case("qwen2", lora=True)
    _, gradient, _ = case.found(SETTINGS["recipe"], [[0, 1, 2, 3, 4]], torch.float64)
    assert gradient
    assert all("lora_" in name for name in gradient)
