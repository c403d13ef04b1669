"""Statistics of a comparison, as pure functions: intervals over seeds, paired differences, what a curve comes to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import mpmath
import numpy as np

LEVEL = 0.95
"""Confidence of every interval."""

_DRAWS = 10_000
"""Resamples of a bootstrap."""

_ENOUGH = 20
"""Pairs from which on a bootstrap over them needs no remark."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `count` values, with its interval; None bounds where `count` is too small for one."""

    mean: float
    low: float | None
    high: float | None
    count: int


def mean_estimate(values: Sequence[float]) -> Estimate:
    """The mean with Student's interval: mean ± t(0.975, n − 1) · s / √n, s with n − 1 (Student 1908, Biometrika 6).

    Exact for independent values of one normal distribution. Of a single value there is no interval. Raises `ValueError`
    for none.
    """
    count, mean = len(values), _mean(values)
    if count < 2:
        return Estimate(mean, None, None, count)
    half = t_quantile(count - 1) * float(np.std(values, ddof=1)) / math.sqrt(count)
    return Estimate(mean, mean - half, mean + half, count)


def paired_estimate(differences: Sequence[float], *, seed: int = 0) -> Estimate:
    """The mean of paired differences with the percentile bootstrap over the pairs (Efron 1979, Ann. Stat. 7).

    The same differences and seed give the same interval. It is too narrow for few pairs: with n of them the spread that
    it resamples is smaller than the true one by √((n − 1)/n), and there are no tails; see `remark`. Of a single pair
    there is no interval. Raises `ValueError` for none.
    """
    count, mean = len(differences), _mean(differences)
    if count < 2:
        return Estimate(mean, None, None, count)
    drawn = np.random.default_rng(seed).integers(count, size=(_DRAWS, count))
    means = np.asarray(differences, dtype=np.float64)[drawn].mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Estimate(mean, float(low), float(high), count)


def remark(pairs: int) -> str | None:
    """What must be said beside an interval over so few pairs, or None where nothing must."""
    if pairs >= _ENOUGH:
        return None
    if pairs < 2:
        return "One pair of runs shows no spread at all: nothing can be concluded from the difference."
    smallest = 2.0 ** (1 - pairs)
    decided = "could not reach p < 0.05" if smallest >= 1 - LEVEL else f"could reach p = {smallest:.2g} at best"
    return (
        f"{pairs} pairs are few: a bootstrap over them is narrower than it should be, and a sign-flip test, which "
        f"assumes next to nothing, {decided}. Take the differences as hints, and more seeds for a decision."
    )


@cache
def t_quantile(df: int) -> float:
    """The two-sided 95 % quantile of Student's t distribution with `df` degrees of freedom.

    It is t with P(|T| > t) = I_x(df/2, 1/2) = 0.05 at x = df / (df + t²), where I is the regularised incomplete beta
    function (Abramowitz and Stegun 1964, 26.5.27 and 26.7.1).
    """

    def tail(t: float) -> float:
        return float(mpmath.betainc(df / 2, 0.5, 0, df / (df + t * t), regularized=True))

    low, high = 0.0, 1.0
    while tail(high) > 1 - LEVEL:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if tail(middle) > 1 - LEVEL else (low, middle)
    return high


def normalised_area(rounds: Sequence[float], values: Sequence[float]) -> float | None:
    """Area under the curve by trapezoids, over the rounds that it spans: the mean height, a share where values are.

    None for fewer than two points. `rounds` must increase.
    """
    if len(rounds) < 2:
        return None
    return float(np.trapezoid(values, rounds)) / (rounds[-1] - rounds[0])


def last_quarter_mean(rounds: Sequence[int], values: Sequence[float], *, total: int) -> float | None:
    """The mean over the last quarter of `total` rounds, rounded up; None where it holds no value."""
    first = total - math.ceil(total / 4) + 1
    found = [value for number, value in zip(rounds, values, strict=True) if number >= first]
    return _mean(found) if found else None


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("there are no values")
    return math.fsum(values) / len(values)
