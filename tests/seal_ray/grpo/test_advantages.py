"""Group-relative advantages and the optional progress reward."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.diagnosis import Label
from envs.errors import UserError
from envs.verifier import Outcome
from seal_ray.grpo.advantages import group_advantages
from seal_ray.grpo.progress import progress_reward
from tests.seal_ray.grpo.diagnoses import diagnosed

PASS, ABSTAINED, SPURIOUS = Label.PASS, Label.CORRECT_ABSTENTION, Label.SPURIOUS_TOOL_CALL


def test_one_success_in_four() -> None:
    advantages_G = group_advantages([1.0, 0.0, 0.0, 0.0], epsilon=0.0)
    assert advantages_G is not None
    assert advantages_G.tolist() == pytest.approx([math.sqrt(3), *[-1 / math.sqrt(3)] * 3])


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=12), st.floats(1e-8, 1.0))
def test_advantages_are_the_formula(rewards: list[float], epsilon: float) -> None:
    advantages_G = group_advantages(rewards, epsilon=epsilon)
    if len(set(rewards)) == 1:
        assert advantages_G is None
        return
    assert advantages_G is not None
    mean, deviation = statistics.fmean(rewards), statistics.pstdev(rewards)
    expected = [(reward - mean) / (deviation + epsilon) for reward in rewards]
    assert advantages_G.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 1 / 3])
@pytest.mark.parametrize("size", [1, 3, 8])
def test_a_group_that_agrees_is_left_out(reward: float, size: int) -> None:
    assert group_advantages([reward] * size) is None


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
