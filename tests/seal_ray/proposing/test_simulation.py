"""Whether a curator can distinguish arms, by simulation on measured success rates: few mistakes, and few misses.

docs/curator.md has the table of `tests/seal_ray/proposing/simulation.py`, from which the two settings here are taken.
"""

from dataclasses import replace

import numpy as np
import pytest

from tests.seal_ray.proposing.simulation import (
    EFFECTS,
    PAIRED,
    QUARTER,
    Effect,
    Setting,
    promoted_within_two,
    recorded,
    replaced_without_effect,
    rescued,
)

SETTINGS = {"a quarter plain": QUARTER, "pairs": PAIRED}


@pytest.mark.parametrize("name", SETTINGS)
def test_without_an_effect_the_incumbent_is_replaced_in_few_windows(name: str) -> None:
    assert replaced_without_effect(SETTINGS[name], runs=150, windows=5) <= 0.05


@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("name", SETTINGS)
def test_an_arm_that_is_better_is_promoted_within_two_windows(name: str, effect: Effect) -> None:
    setting = replace(SETTINGS[name], effect=effect)
    assert promoted_within_two(setting, runs=200)[1] >= 0.85


def test_the_better_arm_of_the_simulation_is_better_by_that() -> None:
    rates = recorded()
    assert len(rates) == 4
    assert {len(tasks) for tasks in rates.values()} == {24}
    for effect in ("even", "one category"):
        gains = [
            float(np.mean([(1 - done / played) * rescued(effect, name) for done, played in tasks]))
            for name, tasks in rates.items()
        ]
        assert np.mean(gains) == pytest.approx(0.15, abs=0.002)
    assert Setting().pairs is False
