"""The loss, token by token: where each bound holds, what is measured, and what is refused."""

import math
from collections.abc import Iterable
from typing import Any

import pytest
import torch

from envs.errors import UserError
from seal_ray.config.schema import TrainingSection
from seal_ray.grpo.losses import LOSSES, CISPOLoss, GRPOLoss, LossSums, RWRLoss, global_mean, kl_to_reference
from seal_ray.grpo.schedule import rate_factor

BARE = GRPOLoss.Settings(kl=0.0)


def of(ratio: float, advantage: float, settings: GRPOLoss.Settings = BARE) -> tuple[float, float, LossSums]:
    """Loss, gradient by the log-prob, and sums of one token."""
    logprobs_M = torch.tensor([math.log(ratio) - 1], dtype=torch.float64, requires_grad=True)
    found = GRPOLoss(settings)(logprobs_M, torch.tensor([-1.0]), torch.tensor([advantage]))
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


def test_the_kl_is_k3_and_finite_however_far_the_policies_are() -> None:
    settings = GRPOLoss.Settings(kl=0.5)
    logprobs_M = torch.tensor([-1.0, -1.0, -300.0, -1.0], requires_grad=True)
    reference_M = torch.tensor([-1.5, -1.0, -1.0, -300.0])
    found = GRPOLoss(settings)(logprobs_M, logprobs_M, torch.zeros(4), reference_logprobs_M=reference_M)
    near, slope = math.exp(-0.5) + 0.5 - 1, math.exp(10) - 1
    far = slope - 10 + 289 * slope  # at 10 nats, and 289 more along the tangent
    assert found.loss_M.tolist() == pytest.approx([near / 2, 0, far / 2, 298 / 2], rel=1e-5)
    assert found.sums.reference_kl == pytest.approx(near + far + 298, rel=1e-5)
    (gradient_M,) = torch.autograd.grad(found.loss_sum, logprobs_M)
    assert gradient_M.tolist() == pytest.approx([(1 - math.exp(-0.5)) / 2, 0, -slope / 2, 0.5], rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_up_to_10_nats_the_kl_and_its_gradient_are_k3s_bit_by_bit(dtype: torch.dtype) -> None:
    log_ratio_M = torch.cat([torch.linspace(-30.0, 10.0, 4001, dtype=dtype), torch.tensor([10.0], dtype=dtype)])
    ours_M, theirs_M = (-log_ratio_M).requires_grad_(), (-log_ratio_M).requires_grad_()
    found_M, expected_M = kl_to_reference(ours_M, torch.zeros_like(ours_M)), torch.expm1(-theirs_M) + theirs_M
    assert torch.equal(found_M, expected_M)
    gradients = (torch.autograd.grad(each.sum(), by)[0] for each, by in ((found_M, ours_M), (expected_M, theirs_M)))
    assert torch.equal(*gradients)


def test_the_importance_weight_is_truncated_and_carries_no_gradient() -> None:
    settings = GRPOLoss.Settings(kl=0.0, importance_cap=2.0)
    logprobs_M = torch.tensor([-1.0, -1.0], dtype=torch.float64, requires_grad=True)
    proximal_M = torch.tensor([-1.1, -1.1], dtype=torch.float64, requires_grad=True)
    old_M = torch.tensor([-3.0, -0.6], dtype=torch.float64)
    found = GRPOLoss(settings)(logprobs_M, old_M, torch.ones(2), proximal_logprobs_M=proximal_M)
    expected = [-2 * math.exp(0.1), -math.exp(-0.5) * math.exp(0.1)]
    assert found.loss_M.tolist() == pytest.approx(expected)
    assert found.sums.capped == 1
    assert found.sums.ratio == pytest.approx(2 * math.exp(0.1))
    by_current, by_proximal = torch.autograd.grad(found.loss_sum, (logprobs_M, proximal_M), allow_unused=True)
    assert by_current.tolist() == pytest.approx(expected)
    assert by_proximal is None


def test_extreme_ratios_stay_finite() -> None:
    settings = GRPOLoss.Settings(kl=0.0, dual_clip=None, importance_cap=5.0)
    logprobs_M = torch.tensor([-1.0, -500.0, -1.0, -500.0], requires_grad=True)
    old_M = torch.tensor([-500.0, -1.0, -500.0, -1.0])
    found = GRPOLoss(settings)(logprobs_M, old_M, torch.tensor([1.0, 1.0, -1.0, -1.0]), proximal_logprobs_M=old_M)
    (gradient_M,) = torch.autograd.grad(found.loss_sum, logprobs_M)
    assert found.loss_M.isfinite().all()
    assert gradient_M.isfinite().all()
    assert of(50.0, -2.0, GRPOLoss.Settings(kl=0.0, dual_clip=None))[0] == pytest.approx(100.0), "nothing bounds it"
    cispo = CISPOLoss(CISPOLoss.Settings(clip_low=1.0, kl=0.0))
    found = cispo(torch.tensor([-9.0]), torch.tensor([-1.0]), torch.tensor([1.0]))
    assert [found.loss_sum.item(), found.sums.clipped_low] == pytest.approx([9 * math.exp(-8), 0])


@pytest.mark.parametrize(
    ("ratio", "advantage", "weight", "held"),
    [
        (1.1, 2.0, 1.1, ""),
        (0.9, -2.0, 0.9, ""),
        (1.5, 2.0, 1.2, "clipped_high"),
        (1.5, -2.0, 1.2, "clipped_high"),
        (0.5, 2.0, 0.8, "clipped_low"),
        (0.5, -2.0, 0.8, "clipped_low"),
    ],
)
def test_cispo_clips_the_weight_and_keeps_every_gradient(
    ratio: float, advantage: float, weight: float, held: str
) -> None:
    # -w·A·log π, and a gradient of -w·A, whatever was clipped (arXiv 2506.13585).
    logprobs_M = torch.tensor([math.log(ratio) - 1], dtype=torch.float64, requires_grad=True)
    loss = CISPOLoss(CISPOLoss.Settings(kl=0.5))
    found = loss(
        logprobs_M, torch.tensor([-1.0]), torch.tensor([advantage]), reference_logprobs_M=logprobs_M.detach() - 0.5
    )
    (gradient_M,) = torch.autograd.grad(found.loss_sum, logprobs_M)
    k3 = math.exp(-0.5) + 0.5 - 1
    assert found.loss_M.item() == pytest.approx(-weight * advantage * (math.log(ratio) - 1) + 0.5 * k3)
    assert gradient_M.item() == pytest.approx(-weight * advantage + 0.5 * (1 - math.exp(-0.5)))
    assert [name for name in ("clipped_low", "clipped_high") if getattr(found.sums, name)] == [held][: bool(held)]
    assert found.sums.ratio == pytest.approx(ratio)
    assert found.sums.reference_kl == pytest.approx(k3)


def test_no_tokens_are_no_loss_and_the_neutral_element() -> None:
    nothing = torch.zeros(0, requires_grad=True)
    for loss in (GRPOLoss(BARE), CISPOLoss(CISPOLoss.Settings(kl=0.0))):
        found = loss(nothing, nothing, nothing)
        assert (found.loss_sum.item(), found.sums) == (0, LossSums())
    some, more = of(1.5, -2.0)[2], of(0.5, -2.0)[2]
    assert LossSums() + some == some == some + LossSums()
    both = some + more
    sums = [both.tokens, both.clipped_low, both.ratio, both.ratio_min, both.ratio_max]
    assert sums == pytest.approx([2, 1, 2.0, 0.5, 1.5])


def test_what_is_missing_is_said() -> None:
    one = torch.zeros(1)
    for loss in (GRPOLoss(GRPOLoss.Settings()), CISPOLoss(CISPOLoss.Settings()), RWRLoss(RWRLoss.Settings())):
        with pytest.raises(ValueError, match="no reference"):
            loss(one, one, one)
    with pytest.raises(ValueError, match="no proximal"):
        GRPOLoss(GRPOLoss.Settings(kl=0.0, importance_cap=2.0))(one, one, one)
    with pytest.raises(ValueError, match="0 tokens"):
        global_mean(one.sum(), 0)
    assert global_mean(torch.tensor(6.0), 4).item() == 1.5


@pytest.mark.parametrize(
    "wrong",
    [{"clip_low": 0.0}, {"clip_high": 0.0}, {"dual_clip": 1.0}, {"kl": math.nan}, {"importance_cap": 0.0}],
)
def test_settings_out_of_range_are_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=f"training.loss: grpo: {next(iter(wrong))}"):
        LOSSES.make("grpo", wrong)


def test_the_gradient_of_weighted_regression_is_the_one_worked_out_by_hand() -> None:
    """Of one token a with logits z: −w(e_a − p) + kl·(1 − exp(ref − cur))·(e_a − p). It has no ratio to the sampler."""
    weight, kl, token = 1.7, 0.3, 2
    logits_V = torch.tensor([0.3, -1.2, 0.8, 0.1], dtype=torch.float64, requires_grad=True)
    reference_V = torch.log_softmax(torch.tensor([1.0, 0.5, -0.4, 0.2], dtype=torch.float64), dim=0)
    logprobs_M = torch.log_softmax(logits_V, dim=0)[token : token + 1]
    loss = RWRLoss(RWRLoss.Settings(kl=kl))
    weight_M, reference_M = torch.tensor([weight], dtype=torch.float64), reference_V[token : token + 1]
    found = loss(logprobs_M, torch.tensor([-9.0]), weight_M, reference_logprobs_M=reference_M)
    (gradient_V,) = torch.autograd.grad(found.loss_sum, logits_V)
    exponentials = [math.exp(value) for value in logits_V.tolist()]
    shares = [value / sum(exponentials) for value in exponentials]
    current = math.log(shares[token])
    factor = -weight + kl * (1 - math.exp(reference_V[token].item() - current))
    by_hand = [factor * ((place == token) - share) for place, share in enumerate(shares)]
    assert gradient_V.tolist() == pytest.approx(by_hand, rel=1e-12)
    k3 = math.exp(reference_V[token].item() - current) - (reference_V[token].item() - current) - 1
    assert found.loss_sum.item() == pytest.approx(-weight * current + kl * k3, rel=1e-12)
    assert found.sums.clipped == 0
    assert found.sums.reference_kl == pytest.approx(k3)


def factors(schedule: str, warm_up: int, total: int, steps: Iterable[int]) -> list[float]:
    """The factors of the learning rate at these steps, of `total`."""
    once: Any = {"groups": 1, "minibatch_groups": 1, "epochs": 1, "schedule": schedule}
    training = TrainingSection(rounds=total, warm_up=warm_up, **once)
    return [rate_factor(step, training) for step in steps]


def test_schedules_by_hand() -> None:
    assert factors("constant", 4, 9, (0, 1, 3, 4, 1000)) == [0.25, 0.5, 1.0, 1.0, 1.0]
    assert factors("linear", 2, 12, (0, 1, 2, 7, 12, 99)) == [0.5, 1.0, 1.0, 0.5, 0.0, 0.0]
    assert factors("cosine", 0, 12, (0, 3, 6, 12)) == pytest.approx([1.0, 0.8535533906, 0.5, 0.0])
    assert factors("cosine", 4, 4, range(6)) == [0.25, 0.5, 0.75, 1.0, 0.0, 0.0]  # no room for a decay
