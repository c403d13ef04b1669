"""Statistics as pure functions: intervals of shares and of means over seeds and tasks, tests, summaries of a curve."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats  # type: ignore[import-untyped]

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Confidence of every interval."""

_ROUNDING = 1e-12
"""A standard error or a mean up to this, relative to values above 1, is rounding."""

_ENOUGH = 8
"""From this many pairs on, an interval over them needs no remark."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `count` values, with its interval; the bounds are None if `count` is too small for one.

    `p` is two-sided, of the t statistic that the mean is 0; None for values that are all equal and not 0. The
    interval includes the sampling of `tasks` tasks; if they are 0 it is over the values alone. `given_seeds` is the
    interval over tasks alone: about these trained models on other tasks, and not about other seeds.
    """

    mean: float
    low: float | None
    high: float | None
    count: int
    p: float | None = None
    tasks: int = 0
    given_seeds: tuple[float, float] | None = None


def mean_estimate(values: Sequence[float]) -> Estimate:
    """The mean with Student's interval: mean ± t(0.975, n − 1) · s / √n, s with n − 1 (Student 1908, Biometrika 6).

    Exact for independent values of one normal distribution; for paired differences it is the paired interval.

    Raises:
        ValueError: There are no values, or one is not finite.
    """
    count, mean = len(values), _mean(values)
    if count < 2:
        return Estimate(mean, None, None, count)
    return _t_estimate(mean, float(np.std(values, ddof=1)) / math.sqrt(count), count - 1, count)


def crossed_estimate(differences: Sequence[float], by_task: Floats, strata: Sequence[str] | None = None) -> Estimate:
    """The mean of paired differences, with an interval over both the seeds and the tasks that were drawn.

    Student's interval with the error and the degrees of freedom of `crossed_error`; none with a single seed or task.
    Given the seeds, the interval is Student's over the means of tasks.

    Args:
        differences: One for each seed.
        by_task: The differences by task: seeds × tasks, the same tasks for every seed.
        strata: As for `crossed_error`.

    Raises:
        ValueError: There are no values, one is not finite, or there are not as many rows as differences.
    """
    mean, (seeds, tasks) = _mean(differences), by_task.shape
    if seeds != len(differences):
        raise ValueError(f"{len(differences)} differences and {seeds} rows of tasks")
    if tasks < 2:
        return Estimate(mean, None, None, seeds)
    (_, _), (by_tasks, df_of_tasks), _ = _squares(by_task, strata)
    given = _interval(mean, math.sqrt(by_tasks), df_of_tasks)
    if seeds < 2:
        return Estimate(mean, None, None, seeds, given_seeds=given)
    error, df = crossed_error(by_task, strata)
    return replace(_t_estimate(mean, float(error), float(df), seeds), tasks=tasks, given_seeds=given)


def crossed_error(values: Floats, strata: Sequence[str] | None = None) -> tuple[Floats, Floats]:
    """Standard error of the mean of seeds × tasks (the last two axes, both at least 2), and its degrees of freedom.

    Both factors are random: v[s, t] = μ + a[s] + b[t] + e[s, t]. With the mean squares A of seeds, B of tasks and C of
    the rest, the variance of the grand mean is (A + B − C) / (seeds · tasks) (Cornfield and Tukey 1956, Ann. Math.
    Stat. 27), but at least the variance by seeds alone and by tasks alone. The degrees of freedom are Satterthwaite's
    (1946, Biometrics 2); infinite if nothing varies.

    Args:
        strata: The stratum of each task, if a fixed number of tasks was drawn in each: B and C are then within strata
            (Cochran 1977, Sampling Techniques, 5.4). Ignored if all strata have one task.
    """
    squares = _squares(values, strata)
    (a, _), (b, _), (c, _) = squares
    variance = np.maximum(a + b - c, np.maximum(a, b))
    spread = sum(part**2 / df for part, df in squares)
    df = np.divide(variance**2, spread, out=np.full_like(variance, np.inf), where=spread > 0)
    return np.sqrt(variance), df


def _squares(values: Floats, strata: Sequence[str] | None) -> tuple[tuple[Any, int], ...]:
    """The mean squares of seeds, tasks and the rest over seeds · tasks, with their degrees of freedom."""
    seeds, tasks = values.shape[-2:]
    of_stratum = np.unique(strata or [""] * tasks, return_inverse=True)[1]
    if of_stratum.max() + 1 == tasks:
        of_stratum[:] = 0
    by_seed = values.mean(axis=-1, keepdims=True)
    within = np.empty(values.shape)
    for stratum in range(of_stratum.max() + 1):
        own = values[..., of_stratum == stratum]
        within[..., of_stratum == stratum] = own - own.mean(axis=-1, keepdims=True)
    by_task = within.mean(axis=-2, keepdims=True)
    seeds_df, tasks_df = seeds - 1, tasks - 1 - of_stratum.max()
    rest_df = seeds_df * tasks_df
    return (
        (
            ((by_seed - by_seed.mean(axis=-2, keepdims=True)) ** 2).sum(axis=(-2, -1)) / (seeds * max(1, seeds_df)),
            seeds_df,
        ),
        ((by_task**2).sum(axis=(-2, -1)) / (tasks * tasks_df), tasks_df),
        (((within - by_task) ** 2).sum(axis=(-2, -1)) / (seeds * tasks * max(1, rest_df)), rest_df),
    )


def sign_flip_p(differences: Sequence[float]) -> float | None:
    """The two-sided p-value of the sign-flip test that paired differences are symmetric about 0; None for one pair.

    It is exact up to 16 pairs, and of 65,536 random signs beyond. With n pairs it is 2^(1 − n) or more (Fisher 1935).
    """
    if len(differences) < 2:
        return None
    test = stats.permutation_test(
        (differences,), np.mean, permutation_type="samples", vectorized=True, n_resamples=1 << 16, rng=0
    )
    return float(test.pvalue)


def fisher_p(successes: int, n: int, others: int, m: int) -> float:
    """The two-sided p-value of Fisher's exact test that two shares, of n and of m runs, are equal."""
    return float(stats.fisher_exact([[successes, n - successes], [others, m - others]]).pvalue)


def share_estimate(successes: Sequence[float]) -> Estimate:
    """The share of ones among 0s and 1s, with Wilson's interval. Raises `ValueError` if there are none."""
    interval = wilson(_mean(successes), len(successes))
    return Estimate(interval.share, interval.low, interval.high, len(successes))


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The p-values, adjusted for their number (Holm 1979, Scand. J. Stat. 6); None stays None and is not counted."""
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        adjusted[place] = highest
    return adjusted


def _t_estimate(mean: float, error: float, df: float, count: int) -> Estimate:
    rounding = _ROUNDING * max(1.0, abs(mean))
    if error > rounding:
        return Estimate(mean, *_interval(mean, error, df), count, 2 * float(stats.t.sf(abs(mean) / error, df)))
    return Estimate(mean, mean, mean, count, 1.0 if abs(mean) <= rounding else None)


def _interval(mean: float, error: float, df: float) -> tuple[float, float]:
    half = float(stats.t.ppf((1 + LEVEL) / 2, df)) * error
    return mean - half, mean + half


def remark(pairs: int) -> str | None:
    """A warning for an interval over few pairs; None if there are enough."""
    if pairs >= _ENOUGH:
        return None
    if pairs < 2:
        return "One pair of runs has no spread: nothing can be concluded from the difference."
    smallest = 2.0 ** (1 - pairs)
    decided = "could not reach p < 0.05" if smallest >= 1 - LEVEL else f"could reach p = {smallest:.2g} at best"
    return (
        f"{pairs} pairs are few: Student's interval assumes normal differences, which so few pairs cannot confirm, and "
        f"a sign-flip test, which assumes next to nothing, {decided}. Treat the differences as hints; run more seeds "
        "for a decision."
    )


def normalised_area(rounds: Sequence[float], values: Sequence[float]) -> float | None:
    """Area under the curve by trapezoids, divided by the rounds that it spans (increasing): its mean height.

    None for fewer than two points.
    """
    if len(rounds) < 2:
        return None
    return float(np.trapezoid(values, rounds)) / (rounds[-1] - rounds[0])


def last_quarter_mean(rounds: Sequence[int], values: Sequence[float], *, total: int) -> float | None:
    """The mean over the last quarter of `total` rounds, rounded up; None if it has no value."""
    first = total - math.ceil(total / 4) + 1
    late = [value for number, value in zip(rounds, values, strict=True) if number >= first]
    return _mean(late) if late else None


def kaplan_meier_median(times: Sequence[float], reached: Sequence[bool]) -> float | None:
    """The first time by which half are estimated to have reached it, by Kaplan and Meier (1958, JASA 53).

    A time that was not `reached` is censored. None if the estimate does not come to one half.
    """
    curve = stats.ecdf(stats.CensoredData.right_censored(times, np.logical_not(reached))).sf
    half = curve.quantiles[curve.probabilities <= 0.5 + 1e-12]
    return float(half[0]) if len(half) else None


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("there are no values")
    if not all(map(math.isfinite, values)):
        raise ValueError("a value is not finite")
    return math.fsum(values) / len(values)


_Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A share with its 95 % interval."""

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.low:.1f} to {100 * self.high:.1f}"


def effective_groups(sizes: Sequence[int]) -> float:
    """The number of equal groups whose mean varies as much: (Σ size)² / Σ size² (Kish 1965, Survey Sampling).

    For items that agree within their group; for others it is too small, and an interval of it is too wide.
    """
    return sum(sizes) ** 2 / max(1, sum(size**2 for size in sizes))


def wilson(share: float, n: float) -> Interval:
    """A share of n independent observations, with Wilson's interval (Wilson 1927, JASA 22)."""
    if not n:
        return Interval(0.0, 0.0, 1.0)
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def paired_difference(differences: Mapping[str, Sequence[float]]) -> Interval:
    """The mean of paired differences (−1, 0 or 1) by group, with an interval over groups.

    With one pair in every group it is the interval of Agresti and Min (2005, Stat. Med. 24), which adds half a pair of
    each of the four outcomes. Several pairs of a group count as one observation, with a cluster-robust variance (Liang
    and Zeger 1986, Biometrika 73); half a group is added, of n / E pairs for n pairs in E `effective_groups`, the
    variance is times E / (E − 1), and the quantile is Student's of E − 1 degrees of freedom. A single group has the
    interval from −1 to 1. `share` is the mean without the added pairs.
    """
    n = sum(map(len, differences.values()))
    if not n:
        return Interval(0.0, -1.0, 1.0)
    effective = effective_groups([len(values) for values in differences.values()])
    size = n / effective
    sums = {group: math.fsum(values) for group, values in differences.items()}
    total = math.fsum(sums.values())
    centre = total / (n + 2 * size)
    added = size**2 * (0.5 * ((1 - centre) ** 2 + (1 + centre) ** 2) + centre**2)
    spread = math.fsum((sums[group] - len(values) * centre) ** 2 for group, values in differences.items())
    quantile = _Z
    if n > len(sums):
        if len(sums) == 1:
            return Interval(total / n, -1.0, 1.0)
        quantile, spread = float(special.stdtrit(effective - 1, 0.975)), spread * effective / (effective - 1)
    half = quantile * math.sqrt(spread + added) / (n + 2 * size)
    return Interval(total / n, max(-1.0, centre - half), min(1.0, centre + half))


def mcnemar(better: int, worse: int) -> float:
    """The two-sided exact (binomial) p-value of McNemar's test (1947, Psychometrika 12)."""
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / (1 << n))
