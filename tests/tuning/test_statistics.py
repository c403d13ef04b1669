"""Statistics against scipy, against values worked out by hand, and against what intervals promise."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats  # type: ignore[import-untyped]

from seal_ray.statistics import (
    Estimate,
    crossed_error,
    crossed_estimate,
    fisher_p,
    holm,
    kaplan_meier_median,
    last_quarter_mean,
    mean_estimate,
    normalised_area,
    remark,
    share_estimate,
    sign_flip_p,
)

SHARES = st.lists(st.floats(0, 1), min_size=2, max_size=12)


@given(SHARES)
def test_the_interval_of_a_mean_is_scipys(values: list[float]) -> None:
    found = mean_estimate(values)
    spread = np.std(values, ddof=1)
    low, high = stats.t.interval(0.95, len(values) - 1, np.mean(values), spread / math.sqrt(len(values)) or 1e-300)
    assert found.mean == pytest.approx(np.mean(values))
    assert found.low == pytest.approx(low, abs=1e-9)
    assert found.high == pytest.approx(high, abs=1e-9)


@given(st.lists(st.floats(-1, 1).map(lambda value: round(value, 3)), min_size=2, max_size=12))
@settings(deadline=None)
def test_the_p_value_is_that_of_the_paired_t_test(differences: list[float]) -> None:
    found, spread = mean_estimate(differences), max(differences) - min(differences)
    if spread:
        assert found.p == pytest.approx(stats.ttest_1samp(differences, 0.0).pvalue, abs=1e-9)


def test_of_one_value_there_is_no_interval_and_of_none_no_mean() -> None:
    assert mean_estimate([0.4]) == Estimate(0.4, None, None, 1)
    assert crossed_estimate([0.4], np.array([[0.4]])) == Estimate(0.4, None, None, 1)
    assert crossed_estimate([0.4, 0.2], np.array([[0.4], [0.2]])).low is None
    with pytest.raises(ValueError, match="no values"):
        mean_estimate([])
    with pytest.raises(ValueError, match="2 differences and 1 rows"):
        crossed_estimate([0.4, 0.2], np.array([[0.4, 0.4]]))


def test_values_that_are_all_equal_have_an_interval_of_no_width() -> None:
    for value, p in ((0.0, 1.0), (0.25, None)):
        assert mean_estimate([value] * 3) == Estimate(value, value, value, 3, p)
        expected = Estimate(value, value, value, 3, p, tasks=7, given_seeds=(value, value))
        assert crossed_estimate([value] * 3, np.full((3, 7), value)) == expected


def test_where_only_seeds_differ_the_crossed_interval_is_students_over_seeds() -> None:
    differences = [0.1, 0.3, -0.1, 0.2]
    found = crossed_estimate(differences, np.repeat(np.array(differences)[:, None], 50, axis=1))
    expected = mean_estimate(differences)
    assert (found.low, found.high, found.p) == pytest.approx((expected.low, expected.high, expected.p))
    assert (found.count, found.tasks) == (4, 50)


def test_where_only_tasks_differ_the_crossed_interval_is_students_over_tasks() -> None:
    by_task = np.random.default_rng(3).integers(-1, 2, 40).astype(float)
    found = crossed_estimate([by_task.mean()] * 5, np.repeat(by_task[None], 5, axis=0))
    expected = mean_estimate(list(by_task))
    assert (found.low, found.high, found.p) == pytest.approx((expected.low, expected.high, expected.p))


@pytest.mark.parametrize("equal", [[0.1] * 3, [0.3 - 0.2, 0.2 - 0.1, 0.1], [1e6 / 3, 1e6 / 3 + 6e-11]])
def test_values_that_differ_by_rounding_alone_have_no_p_value(equal: list[float]) -> None:
    assert np.std(equal, ddof=1) > 0, "the rounding of means or differences, which is no spread"
    found = mean_estimate(equal)
    assert (found.low, found.high, found.p) == (found.mean, found.mean, None)
    crossed = crossed_estimate(equal, np.repeat(np.array(equal)[:, None], 7, axis=1))
    assert (crossed.low, crossed.high, crossed.p) == (crossed.mean, crossed.mean, None)
    assert mean_estimate([0.1 + 0.2 - 0.3, 0.0]).p == 1.0


def test_a_value_that_is_not_finite_is_refused() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(ValueError, match="not finite"):
            mean_estimate([0.1, 0.1, value])
        with pytest.raises(ValueError, match="not finite"):
            crossed_estimate([0.1, value], np.zeros((2, 5)))


@pytest.mark.parametrize("seeds", [1, 2, 5])
def test_given_the_seeds_the_interval_is_students_over_the_means_of_the_tasks(seeds: int) -> None:
    by_task = np.random.default_rng(seeds).integers(-1, 2, (seeds, 30)).astype(float)
    found = crossed_estimate(list(by_task.mean(axis=1)), by_task)
    low, high = stats.t.interval(0.95, 29, by_task.mean(), stats.sem(by_task.mean(axis=0)))
    assert found.given_seeds == pytest.approx((low, high))
    assert (found.low is None) == (seeds == 1)


def test_the_crossed_error_by_hand() -> None:
    # Row means 0.5 and 0, column means 0, 0.5 and 0.25, grand mean 0.25.
    values = np.array([[0.0, 1.0, 0.5], [0.0, 0.0, 0.0]])
    of_seeds, of_tasks, rest = 3 * 2 * 0.25**2 / 1, 2 * 2 * 0.25**2 / 2, 4 * 0.25**2 / 2
    variance = (of_seeds + of_tasks - rest) / 6
    error, df = crossed_error(values)
    assert float(error) == pytest.approx(math.sqrt(variance))
    spread = (of_seeds / 6) ** 2 / 1 + (of_tasks / 6) ** 2 / 2 + (rest / 6) ** 2 / 2
    assert float(df) == pytest.approx(variance**2 / spread)
    errors, dfs = crossed_error(np.stack([values, np.zeros((2, 3))]))
    assert list(errors) == pytest.approx([float(error), 0.0])
    assert dfs[1] == np.inf


def test_holms_correction_by_hand() -> None:
    assert holm([0.01, 0.04, None, 0.03]) == pytest.approx([0.03, 0.06, None, 0.06])
    assert holm([0.2]) == [0.2]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([None]) == [None]
    assert holm([]) == []


def test_the_median_time_by_hand() -> None:
    assert kaplan_meier_median([4, 8, 12, 12], [True, True, False, False]) == 8
    assert kaplan_meier_median([4, 12, 12, 12], [True, False, False, False]) is None
    assert kaplan_meier_median([1, 1, 2, 3], [False, False, True, True]) == 2, "half of the runs still watched"
    assert kaplan_meier_median([], []) is None


def test_few_pairs_are_remarked_on_with_the_least_p_value_of_a_sign_flip_test() -> None:
    assert "nothing can be concluded" in (remark(1) or "")
    assert remark(8) is None
    for pairs in range(3, 8):
        found = stats.permutation_test(([1.0] * pairs,), np.mean, permutation_type="samples", n_resamples=np.inf)
        reached = "could not reach p < 0.05" if found.pvalue >= 0.05 else f"could reach p = {found.pvalue:.2g} at best"
        assert reached in (remark(pairs) or "")


def test_areas_by_hand() -> None:
    assert normalised_area([0, 5, 10], [0.0, 1.0, 1.0]) == pytest.approx(0.75)
    assert normalised_area([0, 1, 10], [0.0, 1.0, 1.0]) == pytest.approx(0.95)
    assert normalised_area([2, 4], [0.5, 0.5]) == 0.5
    assert normalised_area([3], [0.5]) is None


@pytest.mark.parametrize(("total", "mean"), [(8, 7.5), (9, 8.0), (1, 1.0)])
def test_the_last_quarter_is_rounded_up(total: int, mean: float) -> None:
    rounds = list(range(1, total + 1))
    assert last_quarter_mean(rounds, [float(number) for number in rounds], total=total) == pytest.approx(mean)
    assert last_quarter_mean([], [], total=total) is None


def test_in_strata_only_tasks_of_one_stratum_are_compared() -> None:
    # Two seeds that agree, and strata whose tasks agree but differ between them: nothing is left to vary.
    by_task = np.array([[1, 1, 0, 0, 0, 0]] * 2)
    error, _ = crossed_error(by_task, ["a", "a", "b", "b", "b", "b"])
    assert error == 0.0
    assert crossed_error(by_task)[0] > 0.1
    alone = crossed_error(by_task, list("abcdef"))  # a stratum for each task is none
    assert alone[0] == crossed_error(by_task)[0] == crossed_error(by_task.astype(float), ["a"] * 6)[0]
    # Within strata, by hand: the deviations of task means are ±1/4 in each of two pairs, so 4/16 over 2 · 4.
    estimate = crossed_estimate([0.5], np.array([[0.25, 0.75, 0.75, 0.25]]), list("xxyy"))
    half = stats.t.ppf(0.975, 2) * math.sqrt(4 / 16 / (2 * 4))
    assert estimate.given_seeds == pytest.approx((0.5 - half, 0.5 + half))


@given(st.lists(st.integers(-8, 8).map(lambda each: each / 8), min_size=2, max_size=8))
@settings(deadline=None, max_examples=30)
def test_the_sign_flip_test_is_the_share_of_signs_that_give_as_much(differences: list[float]) -> None:
    signs = np.array(list(itertools.product((1, -1), repeat=len(differences))))
    share = np.mean(abs(signs @ np.array(differences)) >= abs(sum(differences)))  # eighths, of which sums are exact
    assert sign_flip_p(differences) == pytest.approx(share)


def test_exact_tests_by_hand() -> None:
    assert sign_flip_p([0.1] * 8) == 2 / 2**8 == pytest.approx(0.0078, abs=1e-4), "the least of eight pairs"
    assert sign_flip_p([0.3]) is None
    assert fisher_p(3, 3, 0, 3) == pytest.approx(2 / math.comb(6, 3))
    assert fisher_p(2, 4, 4, 8) == pytest.approx(1.0)
    found = share_estimate([1.0] * 8)
    assert (found.mean, found.count, found.high) == (1.0, 8, 1.0)
    assert found.low == pytest.approx(8 / (8 + 1.96**2), abs=1e-3)
