"""Statistics against scipy, against values worked out by hand, and against what intervals promise."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from tests.conftest import TABLE
from tuning.statistics import (
    Estimate,
    last_quarter_mean,
    mean_estimate,
    normalised_area,
    paired_estimate,
    remark,
    t_quantile,
)

SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=12)


@pytest.mark.parametrize("df", [1, 2, 3, 4, 9, 29, 120, 5000])
def test_the_quantile_is_students(df: int) -> None:
    assert t_quantile(df) == pytest.approx(stats.t.ppf(0.975, df), rel=1e-9)


@given(SHARES)
def test_the_interval_of_a_mean_is_scipys(values: list[float]) -> None:
    found = mean_estimate(values)
    spread = np.std(values, ddof=1)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), spread / math.sqrt(len(values)) or 1e-300)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.low == pytest.approx(low, abs=1e-9)
    assert found.high == pytest.approx(high, abs=1e-9)


def test_of_one_value_there_is_no_interval_and_of_none_no_mean() -> None:
    assert mean_estimate([0.4]) == paired_estimate([0.4]) == Estimate(0.4, None, None, 1)
    for estimate in (mean_estimate, paired_estimate):
        with pytest.raises(ValueError, match="no values"):
            estimate([])


@given(SHARES)
def test_a_bootstrap_repeats_and_lies_within_what_was_seen(differences: list[float]) -> None:
    found = paired_estimate(differences, seed=3)
    assert found == paired_estimate(differences, seed=3)
    assert found.low is not None
    assert found.high is not None
    slack = 1e-12
    assert min(differences) - slack <= found.low <= found.mean + slack
    assert found.mean - slack <= found.high <= max(differences) + slack


def test_a_bootstrap_is_scipys() -> None:
    differences = np.random.default_rng(5).normal(0.1, 0.2, 20)
    found = paired_estimate(list(differences), seed=1)
    theirs = stats.bootstrap((differences,), np.mean, n_resamples=20_000, method="percentile", rng=2)
    assert found.low == pytest.approx(theirs.confidence_interval.low, abs=0.005)
    assert found.high == pytest.approx(theirs.confidence_interval.high, abs=0.005)


def test_a_bootstrap_of_two_pairs_is_known_exactly() -> None:
    # Means of two draws from (0, 1) are 0, 1/2, 1/2, 1, each a quarter: both tails hold far more than 2.5 %.
    assert paired_estimate([0.0, 1.0]) == Estimate(0.5, 0.0, 1.0, 2)


def coverage(estimate: object, count: int, runs: int) -> float:
    """How often the interval over `count` normal values holds their mean, 0.1."""
    rng = np.random.default_rng(count)
    held = 0
    for values in rng.normal(0.1, 0.05, (runs, count)):
        found = estimate(list(values))  # type: ignore[operator]
        held += found.low <= 0.1 <= found.high
    return held / runs


@pytest.mark.parametrize("count", [2, 3, 5, 10])
def test_students_interval_holds_the_mean_in_95_of_100_runs(count: int) -> None:
    # 4,000 runs: a standard error of 0.34 points, so that four of them are 1.4.
    assert coverage(mean_estimate, count, 4000) == pytest.approx(0.95, abs=0.014)


def test_a_bootstrap_is_too_narrow_for_few_pairs_and_right_for_many(record_property: object) -> None:
    found = {count: coverage(paired_estimate, count, 400) for count in (3, 5, 10, 40)}
    lines = [f"{count} pairs: {share:.1%}" for count, share in found.items()]
    record_property(TABLE, "bootstrap intervals that hold the true difference, of 95 %\n" + "\n".join(lines))  # type: ignore[operator]
    assert found[3] < found[5] < found[40]
    assert found[3] < 0.85
    assert found[40] == pytest.approx(0.945, abs=0.035)
    assert remark(3) is not None
    assert remark(40) is None


@pytest.mark.parametrize(
    ("pairs", "words"),
    [(1, "nothing can be concluded"), (3, "could not reach p < 0.05"), (6, "p = 0.031 at best"), (9, "0.0039 at best")],
)
def test_few_pairs_are_remarked_on(pairs: int, words: str) -> None:
    assert words in (remark(pairs) or "")


def test_the_sign_flip_bound_is_that_of_the_test_itself() -> None:
    for pairs in (3, 5, 6):
        found = stats.permutation_test(([1.0] * pairs,), np.mean, permutation_type="samples", n_resamples=np.inf)
        assert found.pvalue == pytest.approx(2.0 ** (1 - pairs))


def test_areas_by_hand() -> None:
    assert normalised_area([0, 5, 10], [0.0, 1.0, 1.0]) == pytest.approx(0.75)
    assert normalised_area([0, 1, 10], [0.0, 1.0, 1.0]) == pytest.approx(0.95)
    assert normalised_area([3], [0.5]) is None


@given(st.floats(0, 1), st.lists(st.integers(0, 500), min_size=2, max_size=8, unique=True))
def test_the_area_of_a_constant_is_that_constant(value: float, rounds: list[int]) -> None:
    assert normalised_area(sorted(rounds), [value] * len(rounds)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("total", "mean"),
    [(8, 7.5), (9, 8.0), (4, 4.0), (1, 1.0), (25, 22.0)],
)
def test_the_last_quarter_is_rounded_up(total: int, mean: float) -> None:
    rounds = list(range(1, total + 1))
    assert last_quarter_mean(rounds, [float(number) for number in rounds], total=total) == pytest.approx(mean)
    assert last_quarter_mean([], [], total=total) is None
