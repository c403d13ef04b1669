"""From rewards and labels to weights and advantages: formulas, signs, budgets, and the moving table."""

import json
import math
import statistics
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from envs.diagnosis import Label
from envs.verifier import Outcome
from seal_ray.config.schema import ReweightingSection
from seal_ray.grpo.advantages import (
    REJECTION_STEP,
    Advantage,
    centred_advantages,
    dr_grpo,
    group_advantages,
    grpo,
    regression_weights,
    rloo,
)
from seal_ray.grpo.rewards import progress_reward
from seal_ray.grpo.reweighting import (
    NOT_REACHED,
    RHO_DEFAULT,
    RHO_PAPER,
    Reweighter,
    labels_of,
    reweighted,
    rho_table,
    trajectory_weight,
)
from tests.seal_ray.grpo.diagnoses import diagnosed

PASS, ABSTAINED, SPURIOUS = Label.PASS, Label.CORRECT_ABSTENTION, Label.SPURIOUS_TOOL_CALL
REWARDS = st.lists(st.floats(-10, 10), min_size=2, max_size=12).filter(
    lambda rewards: max(rewards) - min(rewards) > 1e-3
)


def mean_of_others(rewards: list[float], place: int) -> float:
    return statistics.fmean(rewards[:place] + rewards[place + 1 :])


@given(REWARDS)
def test_advantages_are_their_formulas(rewards: list[float]) -> None:
    mean, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
    expected: dict[Advantage, list[float]] = {
        grpo: [(reward - mean) / (deviation + 1e-6) for reward in rewards],
        dr_grpo: [reward - mean for reward in rewards],
        rloo: [reward - mean_of_others(rewards, place) for place, reward in enumerate(rewards)],
    }
    for advantage, by_formula in expected.items():
        advantages_G = group_advantages(rewards, advantage=advantage)
        assert advantages_G is not None
        assert advantages_G.tolist() == pytest.approx(by_formula, abs=1e-9)
    default_G = group_advantages(rewards)
    assert default_G is not None
    assert default_G.tolist() == pytest.approx(expected[grpo], abs=1e-9)


def test_an_advantage_gets_the_arm_of_each_member() -> None:
    def within_arm(rewards_G: NDArray[np.float64], arms_G: NDArray[np.int64]) -> NDArray[np.float64]:
        means_G = np.array([rewards_G[arms_G == arm].mean() for arm in arms_G], dtype=np.float64)
        return np.subtract(rewards_G, means_G)

    advantages_G = group_advantages([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1], advantage=within_arm)
    assert advantages_G is not None
    assert advantages_G.tolist() == [0.5, -0.5, 0.0, 0.0]


@pytest.mark.parametrize("wrong", [np.zeros((2, 3)), np.array([math.nan, 0.0, 0.0])], ids=["shape", "nan"])
def test_advantages_of_another_shape_or_not_finite_raise(wrong: NDArray[np.float64]) -> None:
    with pytest.raises(ValueError, match="as many finite numbers as its rewards"):
        group_advantages([1.0, 0.0, 0.0], advantage=lambda *_: wrong)


def test_equal_rewards_have_no_advantages_even_if_they_differ_by_rounding() -> None:
    assert group_advantages([1 / 3] * 8) is None
    parts = [0.1, 0.2, 0.3]
    assert sum(parts) != sum(parts[::-1])
    assert group_advantages([sum(parts), sum(parts[::-1])]) is None
    assert group_advantages([1e-3, 2e-3]) is not None


@pytest.mark.parametrize("rewards", [[], [1.0, math.nan], [math.inf, 0.0], np.zeros((2, 2))])
def test_rewards_that_are_not_finite_numbers_raise(rewards: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        group_advantages(rewards)


def test_a_rejected_proposal_does_not_set_the_scale_of_the_others() -> None:
    # Divided by their deviation these were +0.91, +0.49 and −1.39.
    advantages_G = centred_advantages([0.1, -0.1, -1.0], [False, False, True])
    assert advantages_G is not None
    assert advantages_G.sum() == pytest.approx(0.0)
    assert advantages_G[0] - advantages_G[1] == pytest.approx(0.2)
    assert advantages_G[1] - advantages_G[2] == pytest.approx(REJECTION_STEP)
    assert centred_advantages([0.1, 0.1], [False, False]) is None
    assert centred_advantages([0.0, 0.0], [True, True]) is None


def test_regression_weights_have_the_mean_1_and_leave_out_rejections() -> None:
    weights_G = regression_weights([1000.0, 1001.0, 5.0], [False, False, True])
    assert weights_G is not None
    assert weights_G[2] == 0
    assert weights_G[1] / weights_G[0] == pytest.approx(math.e)
    assert weights_G.mean() == pytest.approx(1)
    assert regression_weights([0.3, 0.3], [False, False]) is None
    assert regression_weights([0.3, 0.4], [True, True]) is None


def test_values_of_accepted_proposals_must_be_finite() -> None:
    for update in (centred_advantages, regression_weights):
        with pytest.raises(ValueError, match="finite"):
            update([math.nan, 0.0], [False, False])
        assert update([math.nan, 0.0, 1.0], [True, False, False]) is not None


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ([PASS, PASS], 1.0),
        ([PASS, ABSTAINED, PASS], 1.0),
        ([PASS, Label.STATE_MISMATCH], 0.5),
        ([PASS, SPURIOUS, PASS], 2 / 2.5),
        ([ABSTAINED, Label.MISSING_TOOL_CALL, Label.MISSING_TOOL_CALL], 0.5 / 2.5),
        ([PASS, Label.NOT_REACHED, Label.NOT_REACHED], 1 / 3),
        ([Label.NOT_REACHED], 0.0),
        # An unreadable call in a turn without ground truth: nothing was called.
        ([(Label.INVALID_TOOL_CALL, Outcome.UNSCORED), PASS], 1.0),
        # Calls before the last turn of a task with a goal are no mistake.
        ([(PASS, Outcome.UNSCORED), PASS], 1.0),
        ([(Label.ARGUMENT_MISMATCH, Outcome.UNSCORED), PASS], 1.0),
        ([ABSTAINED], 1.0),
    ],
)
def test_progress_is_the_share_of_turns_that_passed(turns: list[Label], expected: float) -> None:
    assert progress_reward(diagnosed(*turns)) == pytest.approx(expected)


LABELS = [*RHO_DEFAULT, NOT_REACHED]
ROLLOUTS = st.lists(st.tuples(st.floats(-5, 5), st.lists(st.sampled_from(LABELS), max_size=6)), min_size=1, max_size=12)
PAPER = ReweightingSection()
DEFAULT = ReweightingSection(rho="default")


def test_the_check_value() -> None:
    labels = ["spurious_tool_call", "pass", "pass", "state_mismatch"]
    assert trajectory_weight(labels, rho_table(PAPER)) == 1.25
    advantages_J, weights_J = reweighted([-2.0, 3.0], [labels, []], PAPER, rho_table(PAPER))
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


def test_as_many_advantages_as_rollouts() -> None:
    with pytest.raises(ValueError, match="2 advantages"):
        reweighted([1.0, 2.0], [["pass"]], PAPER, RHO_PAPER)


def test_every_label_but_one_has_a_weight() -> None:
    assert set(RHO_DEFAULT) == {str(label) for label in Label} - {NOT_REACHED}
    shared = RHO_DEFAULT.keys() & RHO_PAPER.keys()
    assert {label: RHO_DEFAULT[label] for label in shared} == {label: RHO_PAPER[label] for label in shared}


def test_turns_that_were_not_reached_do_not_count() -> None:
    rho = rho_table(DEFAULT)
    assert trajectory_weight([NOT_REACHED, "spurious_tool_call"], rho) == 2.0
    assert trajectory_weight([NOT_REACHED], rho) == trajectory_weight([], rho) == 1.0
    assert trajectory_weight(["never heard of"], rho) == 1.0
    assert trajectory_weight(["inherited_state"], rho, low=0.8) == 0.8
    assert trajectory_weight(["spurious_tool_call"], rho, high=1.5) == 1.5


@pytest.mark.parametrize("rho", ["paper", "default"])
def test_two_weights_can_be_set(rho: str) -> None:
    settings = ReweightingSection.model_validate({"rho": rho, "spurious_tool_call": 1.1, "correct_abstention": 0.9})
    table = {"paper": RHO_PAPER, "default": RHO_DEFAULT}[rho]
    assert rho_table(settings) == {**table, "spurious_tool_call": 1.1, "correct_abstention": 0.9}
    assert table["spurious_tool_call"] == 2.0


@given(ROLLOUTS, st.floats(0, 1))
def test_a_budget_keeps_the_mean_at_1(rollouts: list[tuple[float, list[str]]], strength: float) -> None:
    labels_J = [labels for _, labels in rollouts]
    _, weights_J = reweighted([1.0] * len(labels_J), labels_J, ReweightingSection(budget=strength), RHO_DEFAULT)
    labelled = [weight for weight, labels in zip(weights_J, labels_J, strict=True) if set(labels) - {NOT_REACHED}]
    assert not labelled or np.mean(labelled) == pytest.approx(1)
    if strength == 0:
        assert weights_J.tolist() == pytest.approx([1.0] * len(labels_J))


def test_a_budget_is_that_of_the_rollouts_it_applies_to() -> None:
    labels_J = [["spurious_tool_call"], ["pass"], ["spurious_tool_call"], ["pass"], ["pass"]]
    advantages = np.array([1.0, 1.0, -1.0, -1.0, -1.0])
    positive = ReweightingSection(budget=1.0, apply_to="positive")
    negative = ReweightingSection(budget=1.0, apply_to="negative")
    for settings, advantages_J in ((positive, advantages), (negative, -advantages)):
        _, weights_J = reweighted(advantages_J, labels_J, settings, RHO_DEFAULT)
        assert weights_J.tolist() == pytest.approx([2 / 1.5, 1 / 1.5, 1.0, 1.0, 1.0])


WINDOWS = st.lists(
    st.lists(st.tuples(st.lists(st.sampled_from(list(Label)), min_size=1, max_size=20), st.floats(0, 1)), max_size=6),
    min_size=1,
    max_size=4,
)


def test_a_budget_by_hand() -> None:
    labels_J = [["spurious_tool_call"], ["pass"], [NOT_REACHED]]
    _, weights_J = reweighted([1.0] * 3, labels_J, ReweightingSection(budget=0.5), RHO_DEFAULT)
    assert weights_J.tolist() == pytest.approx([1.5 / 1.25, 1 / 1.25, 1.0])


@given(WINDOWS, st.floats(0, 3), st.floats(0.01, 1))
def test_dynamic_weights_are_the_formula(
    windows: list[list[tuple[list[Label], float]]], alpha: float, beta: float
) -> None:
    settings = ReweightingSection(mode="dynamic", rho="default", alpha=alpha, beta=beta, low=0.7, high=2.5)
    reweighter = Reweighter(settings)
    expected = dict(RHO_DEFAULT)
    for rollouts in windows:
        counts = Counter(str(label) for labels, _ in rollouts for label in labels)
        counted = sum(counts[label] for label in RHO_DEFAULT)
        for labels, reward in rollouts:
            reweighter.observe(diagnosed(*labels), reward)
        for label, rho in RHO_DEFAULT.items():
            rewards = [reward for labels, reward in rollouts if label in labels]
            failing = 1 - float(np.mean(rewards)) if rewards else 0.0
            share = counts[label] / counted if counted else 0.0
            target = float(np.clip(rho * (1 + alpha * share * failing * min(1, counts[label] / 32)), 0.7, 2.5))
            if label != "pass":
                expected[label] += beta * (target - expected[label])
        reweighter.follow()
    assert reweighter.rho == pytest.approx(expected)


def test_a_new_window_forgets_and_a_state_continues() -> None:
    settings = ReweightingSection(mode="dynamic")
    reweighter = Reweighter(settings)
    reweighter.observe(diagnosed(*[Label.STATE_MISMATCH] * 32), 0.0)
    other = Reweighter(settings)
    other.set_state(json.loads(json.dumps(reweighter.get_state())))
    for each in (reweighter, other):
        each.follow()
    assert other.rho == reweighter.rho != RHO_PAPER
    fresh = Reweighter(settings)
    fresh.observe(diagnosed(*[Label.STATE_MISMATCH] * 32), 0.0)
    fresh.start_window()
    fresh.follow()
    assert fresh.rho == RHO_PAPER
    with pytest.raises(ValueError, match="a state over"):
        Reweighter(ReweightingSection(mode="dynamic", rho="default")).set_state(reweighter.get_state())


@pytest.mark.parametrize(("mode", "weight"), [("none", 1.0), ("fixed", 1.8), ("dynamic", 2.5)])
def test_the_mode_decides_which_weights_hold(mode: str, weight: float) -> None:
    settings = ReweightingSection.model_validate({"mode": mode, "beta": 1.0, "high": 2.5, "correct_abstention": 1.8})
    reweighter = Reweighter(settings)
    abstained = diagnosed(*[Label.CORRECT_ABSTENTION] * 32)
    reweighter.observe(abstained, 0.0)
    reweighter.follow()
    advantages_J, weights_J = reweighter.weigh(np.array([2.0]), [abstained])
    assert weights_J.tolist() == pytest.approx([weight])
    assert advantages_J.tolist() == pytest.approx([2 * weight])
    assert set(reweighter.rho) == set(RHO_PAPER)
