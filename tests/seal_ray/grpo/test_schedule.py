"""The learning rate's schedule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.errors import UserError
from seal_ray.grpo.schedule import Schedule, faded


def test_schedules_by_hand() -> None:
    assert [Schedule(warm_up=4).factor(step) for step in (0, 1, 3, 4, 1000)] == [0.25, 0.5, 1.0, 1.0, 1.0]
    linear = Schedule("linear", warm_up=2, total=12, floor=0.1)
    found = [linear.factor(step) for step in (0, 1, 2, 7, 12, 99)]
    assert found == pytest.approx([0.5, 1.0, 1.0, 0.55, 0.1, 0.1])
    cosine = Schedule("cosine", warm_up=0, total=12, floor=0.2)
    assert [cosine.factor(step) for step in (0, 3, 6, 12)] == pytest.approx([1.0, 0.2 + 0.8 * 0.8535533906, 0.6, 0.2])


@given(st.sampled_from(["constant", "linear", "cosine"]), st.integers(0, 9), st.integers(10, 30), st.floats(0, 1))
def test_factors_rise_then_fall_between_floor_and_1(decay: Any, warm_up: int, total: int, floor: float) -> None:
    schedule = Schedule(decay, warm_up=warm_up, total=total, floor=floor)
    factors = [schedule.factor(step) for step in range(total + 5)]
    assert factors[0] > 0
    assert max(factors) == 1.0
    assert factors[:warm_up] == sorted(factors[:warm_up])
    after = factors[warm_up:]
    assert after == sorted(after, reverse=True)
    assert after[-1] == pytest.approx(1.0 if decay == "constant" else floor)


@pytest.mark.parametrize(
    "wrong",
    [{"decay": "cosin"}, {"warm_up": -1}, {"floor": 1.5}, {"total": None, "decay": "linear"}],
)
def test_what_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        Schedule(**wrong)


def test_a_warm_up_as_long_as_the_run_leaves_the_floor() -> None:
    schedule = Schedule("cosine", warm_up=4, total=4, floor=0.1)
    assert [schedule.factor(step) for step in range(6)] == [0.25, 0.5, 0.75, 1.0, 0.1, 0.1]


@given(st.integers(1, 50), st.floats(0, 1))
def test_a_fade_is_done_in_the_last_round_or_does_not_begin(rounds: int, begin: float) -> None:
    values = [faded(0.25, 1.0, begin=begin, round_number=number, rounds=rounds) for number in range(rounds)]
    assert values == sorted(values)
    assert values[-1] == (1.0 if begin * rounds < rounds - 1 else 0.25)
    assert all(value == 0.25 for number, value in enumerate(values) if number <= begin * rounds < rounds - 1)


def test_a_fade_by_hand() -> None:
    assert [faded(0.2, 1.0, begin=0.5, round_number=number, rounds=9) for number in (0, 4, 5, 8)] == pytest.approx(
        [0.2, 0.2, 0.2 + 0.8 * 0.5 / 3.5, 1.0]
    )
    assert [faded(0.25, 1.0, begin=0.5, round_number=number, rounds=3) for number in range(3)] == [0.25, 0.25, 1.0]
    assert faded(0.25, None, begin=0.5, round_number=8, rounds=9) == 0.25
