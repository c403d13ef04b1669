"""Statistics of a comparison, as pure functions: intervals over seeds and tasks, corrections, what a curve comes to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special  # type: ignore[import-untyped]

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Confidence of every interval."""

_ENOUGH = 8
"""Pairs from which on an interval over them needs no remark."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `count` values, with its interval; None bounds where `count` is too small for one.

    `p` is two-sided, of the t statistic that the mean is 0. The interval takes in the sampling of `tasks` tasks; where
    they are 0 it is over the values alone. `given_seeds` is the interval over tasks alone, the seeds as they were run:
    about these trained models on other tasks, and not about other seeds.
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

    Exact for independent values of one normal distribution; of paired differences it is the paired interval. Of a
    single value there is no interval. Raises `ValueError` for none.
    """
    count, mean = len(values), _mean(values)
    if count < 2:
        return Estimate(mean, None, None, count)
    return _students(mean, float(np.std(values, ddof=1)) / math.sqrt(count), count - 1, count)


def crossed_estimate(differences: Sequence[float], by_task: Floats) -> Estimate:
    """The mean of paired differences, with an interval over both the seeds and the tasks that were drawn.

    `by_task` has the differences by task: seeds × tasks, the same tasks for every seed. Student's interval with the
    error and the degrees of freedom of `crossed_error`. Of a single seed or task there is no interval. Given the seeds
    it is Student's over the tasks' means, of a single seed too. Raises `ValueError` for no values, or where the rows
    are not as many as the differences.
    """
    mean, (seeds, tasks) = _mean(differences), by_task.shape
    if seeds != len(differences):
        raise ValueError(f"{len(differences)} differences and {seeds} rows of tasks")
    if tasks < 2:
        return Estimate(mean, None, None, seeds)
    given = _interval(mean, float(np.std(by_task.mean(axis=0), ddof=1)) / math.sqrt(tasks), tasks - 1)
    if seeds < 2:
        return Estimate(mean, None, None, seeds, given_seeds=given)
    error, df = crossed_error(by_task)
    return replace(_students(mean, float(error), float(df), seeds), tasks=tasks, given_seeds=given)


def crossed_error(values: Floats) -> tuple[Floats, Floats]:
    """Standard error of the mean of seeds × tasks (the last two axes, both at least 2), and its degrees of freedom.

    Both factors are random: v[s, t] = μ + a[s] + b[t] + e[s, t]. With the mean squares A of seeds, B of tasks and C of
    the rest, the variance of the grand mean is (A + B − C) / (seeds · tasks) (Cornfield and Tukey 1956, Ann. Math.
    Stat. 27), here never below what seeds alone or tasks alone make of it. The degrees of freedom are Satterthwaite's
    (1946, Biometrics 2); infinite where nothing varies.
    """
    seeds, tasks = values.shape[-2:]
    grand = values.mean(axis=(-2, -1), keepdims=True)
    by_seed, by_task = values.mean(axis=-1, keepdims=True), values.mean(axis=-2, keepdims=True)
    rest = values - by_seed - by_task + grand
    # The mean squares over seeds · tasks, with their degrees of freedom.
    found = (
        (((by_seed - grand) ** 2).sum(axis=(-2, -1)) / (seeds * (seeds - 1)), seeds - 1),
        (((by_task - grand) ** 2).sum(axis=(-2, -1)) / (tasks * (tasks - 1)), tasks - 1),
        ((rest**2).sum(axis=(-2, -1)) / (seeds * tasks * (seeds - 1) * (tasks - 1)), (seeds - 1) * (tasks - 1)),
    )
    (a, _), (b, _), (c, _) = found
    variance = np.maximum(a + b - c, np.maximum(a, b))
    spread = sum(part**2 / df for part, df in found)
    df = np.divide(variance**2, spread, out=np.full_like(variance, np.inf), where=spread > 0)
    return np.sqrt(variance), df


def holm(p_values: Sequence[float | None]) -> list[float | None]:
    """The p-values, adjusted for their number (Holm 1979, Scand. J. Stat. 6); None stays, and does not count."""
    order = sorted((p, place) for place, p in enumerate(p_values) if p is not None)
    adjusted: list[float | None] = [None] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        adjusted[place] = highest
    return adjusted


def t_quantile(df: float) -> float:
    """The two-sided 95 % quantile of Student's t distribution with `df` degrees of freedom."""
    return float(special.stdtrit(df, (1 + LEVEL) / 2))


def _students(mean: float, error: float, df: float, count: int) -> Estimate:
    low, high = _interval(mean, error, df)
    t = abs(mean) / error if error > 0 else math.inf if mean else 0.0
    p = 2 * float(special.stdtr(df, -t))
    return Estimate(mean, low, high, count, p)


def _interval(mean: float, error: float, df: float) -> tuple[float, float]:
    half = t_quantile(df) * error
    return mean - half, mean + half


def remark(pairs: int) -> str | None:
    """What must be said beside an interval over so few pairs, or None where nothing must."""
    if pairs >= _ENOUGH:
        return None
    if pairs < 2:
        return "One pair of runs shows no spread at all: nothing can be concluded from the difference."
    smallest = 2.0 ** (1 - pairs)
    decided = "could not reach p < 0.05" if smallest >= 1 - LEVEL else f"could reach p = {smallest:.2g} at best"
    return (
        f"{pairs} pairs are few: Student's interval counts on normal differences, which so few cannot show, and a "
        f"sign-flip test, which assumes next to nothing, {decided}. Take the differences as hints, and more seeds for "
        "a decision."
    )


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


def kaplan_meier_median(times: Sequence[float], reached: Sequence[bool]) -> float | None:
    """The first time by which half are estimated to have reached it, by Kaplan and Meier (1958, JASA 53).

    Of those that have not, `times` says how long they were watched. None where the estimate does not come to one half.
    """
    left = 1.0
    for time in sorted({time for time, event in zip(times, reached, strict=True) if event}):
        at_risk = sum(other >= time for other in times)
        events = sum(event and other == time for other, event in zip(times, reached, strict=True))
        left *= 1 - events / at_risk
        if left <= 0.5 + 1e-12:
            return time
    return None


def _mean(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("there are no values")
    return math.fsum(values) / len(values)
