"""Group-relative advantages and the optional progress reward."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from seal_ray.grpo.advantages.dr_grpo import DrGRPOAdvantage
from seal_ray.grpo.advantages.grpo import GRPOAdvantage
from seal_ray.grpo.baselines.leave_one_out import LeaveOneOutBaseline
from seal_ray.grpo.rewards.progress import progress_reward

from envs.diagnosis import Label
from envs.errors import UserError
from envs.verifier import Outcome
from seal_ray.grpo.advantages import GroupAdvantages, group_advantages
from tests.seal_ray.grpo.diagnoses import diagnosed

PASS, ABSTAINED, SPURIOUS = Label.PASS, Label.CORRECT_ABSTENTION, Label.SPURIOUS_TOOL_CALL


def with_epsilon(epsilon: float) -> GroupAdvantages:
    return GroupAdvantages(advantage=GRPOAdvantage(GRPOAdvantage.Settings(epsilon=epsilon)))


def test_one_success_in_four() -> None:
    advantages_G = with_epsilon(0.0)([1.0, 0.0, 0.0, 0.0])
    assert advantages_G is not None
    assert advantages_G.tolist() == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12), st.floats(1e-8, 1.0))
def test_advantages_are_the_formula(rewards: list[float], epsilon: float) -> None:
    advantages_G = with_epsilon(epsilon)(rewards)
    if len(set(rewards)) == 1:
        assert advantages_G is None
        return
    assert advantages_G is not None
    mean, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
    expected = [(reward - mean) / (deviation + epsilon) for reward in rewards]
    assert advantages_G.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12).filter(lambda found: len(set(found)) > 1))
def test_the_default_is_the_one_expression_to_the_bit(rewards: list[float]) -> None:
    values = np.asarray(rewards)
    advantages_G = group_advantages(rewards)
    assert advantages_G is not None
    assert advantages_G.tolist() == ((values - values.mean()) / (values.std() + 1e-6)).tolist()


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12).filter(lambda found: len(set(found)) > 1))
def test_leave_one_out_and_no_deviation_are_their_formulas(rewards: list[float]) -> None:
    # RLOO: each reward less the mean of the others (arXiv 2402.14740).
    others = [statistics.fmean(rewards[:place] + rewards[place + 1 :]) for place in range(len(rewards))]
    found = GroupAdvantages(LeaveOneOutBaseline(), DrGRPOAdvantage())(rewards)
    assert found is not None
    assert found.tolist() == pytest.approx([r - other for r, other in zip(rewards, others, strict=True)], abs=1e-9)
    # Dr. GRPO: each reward less the mean of the group (arXiv 2503.20783).
    found = GroupAdvantages(advantage=DrGRPOAdvantage())(rewards)
    assert found is not None
    assert found.tolist() == pytest.approx([reward - statistics.fmean(rewards) for reward in rewards], abs=1e-9)


def test_a_baseline_is_given_the_arm_that_each_member_played() -> None:
    class OfTheArm:
        def __call__(self, rewards_G: NDArray[np.float64], arms_G: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.array([rewards_G[arms_G == arm].mean() for arm in arms_G])

    found = GroupAdvantages(OfTheArm(), DrGRPOAdvantage())([1.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    assert found is not None
    assert found.tolist() == [0.5, -0.5, 0.0, 0.0]


def test_a_baseline_or_a_scale_that_does_not_fit_is_refused() -> None:
    class Short:
        def __call__(self, rewards_G: NDArray[np.float64], arms_G: NDArray[np.int64]) -> NDArray[np.float64]:
            return np.zeros((2, len(rewards_G)))

    class NotANumber:
        def __call__(self, rewards_G: NDArray[np.float64]) -> float:
            return math.nan

    for wrong in (GroupAdvantages(baseline=Short()), GroupAdvantages(advantage=NotANumber())):
        with pytest.raises(ValueError, match="as many finite numbers as its rewards"):
            wrong([1.0, 0.0, 0.0])


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_group_that_agrees_is_left_out(reward: float, size: int) -> None:
    assert group_advantages([reward] * size) is None


def test_rewards_that_differ_by_rounding_agree() -> None:
    parts = [0.1, 0.2, 0.3]
    assert sum(parts) != sum(parts[::-1])
    assert group_advantages([sum(parts), sum(parts[::-1])]) is None
    assert group_advantages([1e-3, 2e-3]) is not None


@pytest.mark.parametrize("rewards", [[], [1.0, math.nan], [math.inf, 0.0]])
def test_rewards_that_are_none_raise(rewards: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        group_advantages(rewards)
    with pytest.raises(ValueError, match="finite"):
        group_advantages(np.zeros((2, 2)))  # type: ignore[arg-type]


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
        # An unreadable call where nothing was to be called: nothing was.
        ([(Label.INVALID_TOOL_CALL, Outcome.UNSCORED), PASS], 1.0),
        # Calls before the last turn of a task with a goal are no mistake.
        ([(PASS, Outcome.UNSCORED), PASS], 1.0),
        ([(Label.ARGUMENT_MISMATCH, Outcome.UNSCORED), PASS], 1.0),
        ([ABSTAINED], 1.0),
    ],
)
def test_progress(turns: list[Label], expected: float) -> None:
    assert progress_reward(diagnosed(*turns)) == pytest.approx(expected)


def test_the_weight_of_abstentions() -> None:
    never_calls = diagnosed(ABSTAINED, Label.MISSING_TOOL_CALL)
    assert progress_reward(never_calls, abstention_weight=1.0) == 0.5
    assert progress_reward(never_calls, abstention_weight=0.0) == 0.0
    assert progress_reward(diagnosed(ABSTAINED), abstention_weight=0.0) == 1.0
    for wrong in (-0.5, math.nan, math.inf):
        with pytest.raises(UserError, match="abstention_weight"):
            progress_reward(never_calls, abstention_weight=wrong)
