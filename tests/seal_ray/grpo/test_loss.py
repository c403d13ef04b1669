"""The loss, token by token: where each bound holds, what is measured, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envs.errors import UserError
from seal_ray.grpo.loss import LossSettings, LossSums, global_mean, token_losses

BARE = LossSettings(kl_coefficient=0.0)


def of(ratio: float, advantage: float, settings: LossSettings = BARE) -> tuple[float, float, LossSums]:
    """Loss, gradient by the log-prob, and sums of one token."""
    logprobs_M = torch.tensor([math.log(ratio) - 1], dtype=torch.float64, requires_grad=True)
    found = token_losses(logprobs_M, torch.tensor([-1.0]), torch.tensor([advantage]), settings)
    (gradient,) = torch.autograd.grad(found.loss_sum, logprobs_M)
    return found.loss_sum.item(), gradient.item(), found.sums


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient", "held"),
    [
        (1.1, 2.0, -2.2, -2.2, ""),
        (0.5, 2.0, -1.0, -1.0, ""),
        (1.5, 2.0, -2.4, 0.0, "clipped_high"),
        (0.9, -2.0, 1.8, 1.8, ""),
        (0.5, -2.0, 1.6, 0.0, "clipped_low"),
        (1.5, -2.0, 3.0, 3.0, ""),
        (9.9, -2.0, 19.8, 19.8, ""),
        (11.0, -2.0, 20.0, 0.0, "clipped_dual"),
        (1.5, 0.0, 0.0, 0.0, ""),
    ],
)
def test_where_each_bound_holds(ratio: float, advantage: float, loss: float, gradient: float, held: str) -> None:
    found = of(ratio, advantage)
    assert found[:2] == pytest.approx((loss, gradient), abs=1e-12)
    assert [name for name in ("clipped_low", "clipped_high", "clipped_dual") if getattr(found[2], name)] == [held][
        : bool(held)
    ]
    assert found[2].ratio == found[2].ratio_min == found[2].ratio_max == pytest.approx(ratio)
    assert found[2].sampler_kl == pytest.approx(ratio - 1 - math.log(ratio))


def test_without_dual_clip_nothing_bounds_a_negative_advantage() -> None:
    assert of(50.0, -2.0, LossSettings(kl_coefficient=0.0, dual_clip=None))[0] == pytest.approx(100.0)


def test_the_kl_is_k3_and_finite_however_far_the_policies_are() -> None:
    settings = LossSettings(kl_coefficient=0.5)
    logprobs_M = torch.tensor([-1.0, -1.0, -300.0, -1.0], requires_grad=True)
    reference_M = torch.tensor([-1.5, -1.0, -1.0, -300.0])
    found = token_losses(logprobs_M, logprobs_M, torch.zeros(4), settings, reference_logprobs_M=reference_M)
    near = math.exp(-0.5) + 0.5 - 1
    assert found.loss_M.tolist() == pytest.approx([near / 2, 0, (math.exp(10) - 11) / 2, 298 / 2], rel=1e-5)
    assert found.sums.reference_kl == pytest.approx(near + math.exp(10) - 11 + 298, rel=1e-5)
    (gradient_M,) = torch.autograd.grad(found.loss_sum, logprobs_M)
    assert gradient_M.tolist() == pytest.approx([(1 - math.exp(-0.5)) / 2, 0, 0, 0.5], rel=1e-5)


def test_the_importance_weight_is_truncated_and_carries_no_gradient() -> None:
    settings = LossSettings(kl_coefficient=0.0, importance_cap=2.0)
    logprobs_M = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    proximal_M = torch.tensor([-1.1, -1.1], dtype=torch.float64, requires_grad=True)
    old_M = torch.tensor([-3.0, -0.6], dtype=torch.float64)
    found = token_losses(logprobs_M, old_M, torch.ones(2), settings, proximal_logprobs_M=proximal_M)
    expected = [-2 * math.exp(0.1), -math.exp(-0.5) * math.exp(0.1)]
    assert found.loss_M.tolist() == pytest.approx(expected)
    assert found.sums.capped == 1
    assert found.sums.ratio == pytest.approx(2 * math.exp(0.1))
    by_current, by_proximal = torch.autograd.grad(found.loss_sum, (logprobs_M, proximal_M), allow_unused=True)
    assert by_current.tolist() == pytest.approx(expected)
    assert by_proximal is None


def test_extreme_ratios_stay_finite() -> None:
    settings = LossSettings(kl_coefficient=0.0, dual_clip=None, importance_cap=5.0)
    logprobs_M = torch.tensor([-1.0, -500.0, -1.0, -500.0], requires_grad=True)
    old_M = torch.tensor([-500.0, -1.0, -500.0, -1.0])
    found = token_losses(logprobs_M, old_M, torch.tensor([1.0, 1.0, -1.0, -1.0]), settings, proximal_logprobs_M=old_M)
    (gradient_M,) = torch.autograd.grad(found.loss_sum, logprobs_M)
    assert found.loss_M.isfinite().all()
    assert gradient_M.isfinite().all()


def test_no_tokens_are_no_loss_and_the_neutral_element() -> None:
    nothing = torch.zeros(0, requires_grad=True)
    found = token_losses(nothing, nothing, nothing, BARE)
    assert found.loss_sum.item() == 0
    some = of(1.5, -2.0)[2]
    assert found.sums + some == some == some + LossSums()


@given(st.lists(st.tuples(st.floats(0.1, 20), st.floats(-3, 3)), min_size=2, max_size=8), st.integers(1, 7))
def test_parts_add_up_to_the_whole(tokens: list[tuple[float, float]], cut: int) -> None:
    cut = min(cut, len(tokens) - 1)
    settings = LossSettings(kl_coefficient=0.1, importance_cap=1.5)

    def sums(part: list[tuple[float, float]]) -> LossSums:
        logprobs_M = torch.tensor([math.log(ratio) - 4 for ratio, _ in part], dtype=torch.float64)
        old_M = torch.full((len(part),), -4.0)
        advantages_M = torch.tensor([advantage for _, advantage in part])
        found = token_losses(
            logprobs_M, old_M, advantages_M, settings, reference_logprobs_M=old_M, proximal_logprobs_M=old_M + 0.1
        )
        return found.sums

    whole, parts = sums(tokens), sums(tokens[:cut]) + sums(tokens[cut:])
    for name in LossSums.__dataclass_fields__:
        assert getattr(parts, name) == pytest.approx(getattr(whole, name), rel=1e-9, abs=1e-9), name


def test_what_is_missing_is_said() -> None:
    one = torch.zeros(1)
    with pytest.raises(ValueError, match="no reference"):
        token_losses(one, one, one, LossSettings())
    with pytest.raises(ValueError, match="no proximal"):
        token_losses(one, one, one, LossSettings(kl_coefficient=0.0, importance_cap=2.0))
    with pytest.raises(ValueError, match="0 tokens"):
        global_mean(one.sum(), 0)
    assert global_mean(torch.tensor(6.0), 4).item() == 1.5


@pytest.mark.parametrize(
    "wrong",
    [
        {"clip_low": 0.0},
        {"clip_high": 0.0},
        {"dual_clip": 1.0},
        {"kl_coefficient": -0.1},
        {"kl_coefficient": math.nan},
        {"importance_cap": 0.0},
    ],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        LossSettings(**wrong)
