"""Intervals of shares and of their paired differences, as pure functions."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import special  # type: ignore[import-untyped]

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


def wilson(share: float, n: int) -> Interval:
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
    and Zeger 1986, Biometrika 73) times G / (G − 1) for G groups, and Student's quantile of G − 1 degrees of freedom
    (Cameron and Miller 2015, J. Hum. Resour. 50). A single group has the interval from −1 to 1. `share` is the mean
    without the added pairs.
    """
    n = sum(map(len, differences.values()))
    if not n:
        return Interval(0.0, -1.0, 1.0)
    sums = {group: math.fsum(values) for group, values in differences.items()}
    total = math.fsum(sums.values())
    centre = total / (n + 2)
    added = 0.5 * ((1 - centre) ** 2 + (1 + centre) ** 2) + centre**2
    spread = math.fsum((sums[group] - len(values) * centre) ** 2 for group, values in differences.items())
    quantile, groups = _Z, len(sums)
    if n > groups:
        if groups == 1:
            return Interval(total / n, -1.0, 1.0)
        quantile, spread = float(special.stdtrit(groups - 1, 0.975)), spread * groups / (groups - 1)
    half = quantile * math.sqrt(spread + added) / (n + 2)
    return Interval(total / n, max(-1.0, centre - half), min(1.0, centre + half))


def mcnemar(better: int, worse: int) -> float:
    """The two-sided exact (binomial) p-value of McNemar's test (1947, Psychometrika 12)."""
    n = better + worse
    tail = sum(math.comb(n, k) for k in range(min(better, worse) + 1))
    return min(1.0, 2 * tail / (1 << n))
