"""Advantages of a group and of a window's proposals, and the rewards of rollouts."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from envs.diagnosis import Label
from envs.verifier import Outcome
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


def test_grpo_is_the_default() -> None:
    advantages_G = group_advantages([1.0, 0.0, 0.0, 0.0])
    assert advantages_G is not None
    assert advantages_G.tolist() == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3], rel=1e-5)


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


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_equal_rewards_have_no_advantages(reward: float, size: int) -> None:
    assert group_advantages([reward] * size) is None


def test_rewards_that_differ_by_rounding_are_equal() -> None:
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


def test_the_weight_of_abstentions() -> None:
    never_calls = diagnosed(ABSTAINED, Label.MISSING_TOOL_CALL)
    assert progress_reward(never_calls, abstention_weight=1.0) == 0.5
    assert progress_reward(never_calls, abstention_weight=0.0) == 0.0
    assert progress_reward(diagnosed(ABSTAINED), abstention_weight=0.0) == 1.0
