"""Labels to weights to advantages: the check value, the signs, the budget, the warm-up, and the moving table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.diagnosis import Label
from envs.errors import UserError
from seal_ray.grpo.reweighting import (
    NOT_REACHED,
    RHO_DEFAULT,
    RHO_PAPER,
    DynamicWeights,
    ReweightingSettings,
    labels_of,
    reweighted,
    rho_table,
    trajectory_weight,
)
from tests.seal_ray.grpo.diagnoses import diagnosed

LABELS = [*RHO_DEFAULT, NOT_REACHED]
ROLLOUTS = st.lists(st.tuples(st.floats(-5, 5), st.lists(st.sampled_from(LABELS), max_size=6)), min_size=1, max_size=12)
SETTINGS = st.builds(
    ReweightingSettings,
    low=st.floats(0.1, 1),
    high=st.floats(1, 3),
    budget=st.none() | st.floats(0, 1),
    apply_to=st.sampled_from(["all", "positive", "negative"]),
    warm_up=st.integers(0, 5),
)


def test_the_check_value() -> None:
    labels = ["spurious_tool_call", "pass", "pass", "state_mismatch"]
    assert trajectory_weight(labels, rho_table("paper")) == 1.25
    advantages_J, weights_J = reweighted([-2.0, 3.0], [labels, []], ReweightingSettings(), rho_table("paper"), 0)
    assert (advantages_J.tolist(), weights_J.tolist()) == ([-2.5, 3.0], [1.25, 1.0])


def test_labels_are_in_the_words_of_the_table() -> None:
    diagnosis = diagnosed(
        Label.PASS, Label.MISSING_TOOL_CALL, Label.SPURIOUS_TOOL_CALL, Label.INHERITED_STATE, Label.NOT_REACHED
    )
    assert labels_of(diagnosis, "default") == diagnosis.labels
    paper = ("pass", "empty_turn_model_response", "spurious_tool_call", "state_mismatch", NOT_REACHED)
    assert labels_of(diagnosis, "paper") == paper
    assert trajectory_weight(labels_of(diagnosis, "paper"), RHO_PAPER) == (1 + 1.5 + 2 + 1) / 4
    assert trajectory_weight(labels_of(diagnosis, "default"), RHO_DEFAULT) == pytest.approx((1 + 1.5 + 2 + 0.6) / 4)


def test_every_label_but_one_has_a_weight() -> None:
    assert set(RHO_DEFAULT) == {str(label) for label in Label} - {NOT_REACHED}
    shared = RHO_DEFAULT.keys() & RHO_PAPER.keys()
    assert {label: RHO_DEFAULT[label] for label in shared} == {label: RHO_PAPER[label] for label in shared}


def test_turns_that_were_not_reached_do_not_count() -> None:
    rho = rho_table("default")
    assert trajectory_weight([NOT_REACHED, "spurious_tool_call"], rho) == 2.0
    assert trajectory_weight([NOT_REACHED], rho) == trajectory_weight([], rho) == 1.0
    assert trajectory_weight(["never heard of"], rho) == 1.0
    assert trajectory_weight(["inherited_state"], rho, low=0.8) == 0.8
    assert trajectory_weight(["spurious_tool_call"], rho, high=1.5) == 1.5


def test_overrides() -> None:
    table = rho_table("default", {"pass": 0.7})
    assert table == {**RHO_DEFAULT, "pass": 0.7}
    assert RHO_DEFAULT["pass"] == 1.0
    with pytest.raises(UserError, match=r"rho: 'papr'.*'paper'"):
        rho_table("papr")
    with pytest.raises(UserError, match=r"'spurious_call'.*'spurious_tool_call'"):
        rho_table("default", {"spurious_call": 1.0})
    with pytest.raises(UserError, match="missing_tool_call"):
        rho_table("paper", {"missing_tool_call": 1.0})
    for wrong in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(UserError, match="finite number above 0"):
            rho_table("paper", {"pass": wrong})


@given(ROLLOUTS, SETTINGS, st.integers(0, 6))
def test_signs_never_change(rollouts: list[tuple[float, list[str]]], settings: ReweightingSettings, step: int) -> None:
    advantages = [advantage for advantage, _ in rollouts]
    found_J, weights_J = reweighted(advantages, [labels for _, labels in rollouts], settings, RHO_DEFAULT, step)
    assert (weights_J > 0).all()
    assert (found_J == np.array(advantages) * weights_J).all()
    # A tiny advantage may vanish, but none turns round.
    assert (np.sign(found_J) * np.sign(advantages) >= 0).all()
    for (advantage, labels), weight in zip(rollouts, weights_J, strict=True):
        left_alone = {"all": False, "positive": advantage <= 0, "negative": advantage >= 0}[settings.apply_to]
        if left_alone or not set(labels) - {NOT_REACHED} or (step == 0 and settings.warm_up):
            assert weight == 1.0
        elif settings.budget is None and step >= settings.warm_up:
            assert weight == trajectory_weight(labels, RHO_DEFAULT, low=settings.low, high=settings.high)


@given(ROLLOUTS, st.floats(0, 1))
def test_a_budget_keeps_the_mean_at_1(rollouts: list[tuple[float, list[str]]], strength: float) -> None:
    labels_J = [labels for _, labels in rollouts]
    settings = ReweightingSettings(budget=strength)
    _, weights_J = reweighted([1.0] * len(labels_J), labels_J, settings, RHO_DEFAULT, 0)
    labelled = [weight for weight, labels in zip(weights_J, labels_J, strict=True) if set(labels) - {NOT_REACHED}]
    assert not labelled or np.mean(labelled) == pytest.approx(1)
    if strength == 0:
        assert weights_J.tolist() == pytest.approx([1.0] * len(labels_J))


def test_a_budget_is_that_of_the_rollouts_it_applies_to() -> None:
    labels_J = [["spurious_tool_call"], ["pass"], ["spurious_tool_call"], ["pass"], ["pass"]]
    advantages = np.array([1.0, 1.0, -1.0, -1.0, -1.0])
    positive = ReweightingSettings(budget=1.0, apply_to="positive")
    negative = ReweightingSettings(budget=1.0, apply_to="negative")
    for settings, advantages_J in ((positive, advantages), (negative, -advantages)):
        _, weights_J = reweighted(advantages_J, labels_J, settings, RHO_DEFAULT, 0)
        assert weights_J.tolist() == pytest.approx([2 / 1.5, 1 / 1.5, 1.0, 1.0, 1.0])


def test_a_budget_by_hand() -> None:
    labels_J = [["spurious_tool_call"], ["pass"], [NOT_REACHED]]
    _, weights_J = reweighted([1.0] * 3, labels_J, ReweightingSettings(budget=0.5), RHO_DEFAULT, 0)
    assert weights_J.tolist() == pytest.approx([1.5 / 1.25, 1 / 1.25, 1.0])


def test_the_warm_up_is_a_ramp() -> None:
    settings = ReweightingSettings(warm_up=4)
    weights = [reweighted([1.0], [["spurious_tool_call"]], settings, RHO_PAPER, step)[1][0] for step in range(6)]
    assert weights == [1.0, 1.25, 1.5, 1.75, 2.0, 2.0]


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="2 advantages"):
        reweighted([1.0, 2.0], [["pass"]], ReweightingSettings(), RHO_PAPER, 0)
    refused: list[dict[str, Any]] = [{"low": 0.0}, {"high": 0.9}, {"budget": 1.5}, {"apply_to": "al"}, {"warm_up": -1}]
    for wrong in refused:
        with pytest.raises(UserError, match=next(iter(wrong))):
            ReweightingSettings(**wrong)
    for wrong in ({"alpha": -1.0}, {"beta": 0.0}, {"n_conf": 0}, {"w_min": 3.0}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            DynamicWeights(RHO_PAPER, **wrong)


WINDOWS = st.lists(
    st.dictionaries(st.sampled_from(LABELS), st.tuples(st.integers(0, 80), st.floats(0, 1))), min_size=1, max_size=5
)


@given(WINDOWS, st.floats(0, 3), st.floats(0.01, 1), st.integers(1, 64))
def test_dynamic_weights_are_the_formula(
    windows: list[dict[str, tuple[int, float]]], alpha: float, beta: float, n_conf: int
) -> None:
    dynamic = DynamicWeights(RHO_DEFAULT, alpha=alpha, beta=beta, n_conf=n_conf, w_min=0.7, w_max=2.5)
    expected = dict(RHO_DEFAULT)
    for window in windows:
        dynamic.update({z: count for z, (count, _) in window.items()}, {z: mean for z, (_, mean) in window.items()})
        n = {z: window.get(z, (0, 0.0))[0] for z in RHO_DEFAULT}
        everything = sum(n.values())
        for z, rho in RHO_DEFAULT.items():
            share = n[z] / everything if everything else 0.0
            failing = 1 - window.get(z, (0, 0.0))[1]
            confidence = n[z] / n_conf if n[z] < n_conf else 1.0
            target = float(np.clip(rho + rho * alpha * share * failing * confidence, 0.7, 2.5))
            if z != "pass":
                expected[z] += beta * (target - expected[z])
    assert dynamic.rho == pytest.approx(expected)
    assert dynamic.rho["pass"] == RHO_DEFAULT["pass"]


def test_dynamic_weights_by_hand_and_their_state() -> None:
    dynamic = DynamicWeights(RHO_PAPER)
    assert dynamic.rho == RHO_PAPER
    dynamic.update({"state_mismatch": 16, "pass": 48, NOT_REACHED: 1000}, {"state_mismatch": 0.2, "pass": 0.9})
    # target = 1 + 16/64 · 0.8 · 16/32
    assert dynamic.rho["state_mismatch"] == pytest.approx(0.75 + 0.25 * 1.1)
    other = DynamicWeights(RHO_PAPER)
    other.load_state_dict(dynamic.state_dict())
    assert other.rho == dynamic.rho
    dynamic.update({}, {})
    assert dynamic.rho["state_mismatch"] == pytest.approx(1 + 0.025 * 0.75)
    assert other.rho != dynamic.rho
    with pytest.raises(ValueError, match="not one of a table"):
        DynamicWeights(RHO_DEFAULT).load_state_dict(dynamic.state_dict())
    with pytest.raises(KeyError):
        dynamic.update({"state_mismatch": 1}, {})
