"""What arms are worth, from tasks that they have in common: a Gaussian posterior over windows, with a discount.

The value of an arm is how far it lies above the plain arm, whose value is 0. The model is that of a block design, in
which a task is a block: `y = u_task + θ_arm + noise`, where `u` is anything and the noise of a mean of n rollouts has
the variance σ²/n. With u taken out, the arms that played a task with n rollouts each (a vector n, its sum N) add

    S += diag(n) − n nᵀ / N        b += n · (y − Σ n y / N)

(intra-block equations: Montgomery, Design and Analysis of Experiments, section 4.4, here with weights). A task that one
arm alone played adds nothing. With the prior θ ~ N(0, τ²) the posterior is Gaussian (Gelman et al., Bayesian Data
Analysis, 3rd edition, section 14.8):

    precision = S / σ² + I / τ²    mean = precision⁻¹ · b / σ²

All sums are multiplied by a discount between 0 and 1 once a window, since the policy that plays changes (discounted
Thompson sampling: Raj and Kalyani, arXiv 1707.09727).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NOISE = 0.15
"""Variance of one rollout's success that is assumed before any was played."""
NOISE_WEIGHT = 16.0
"""Degrees of freedom that an assumed variance counts for, beside those that were measured."""
MOST_ARMS = 64
"""Arms that are remembered at most; those with the least information are forgotten."""
LEAST_INFORMATION = 0.25
"""Effective rollouts under which an arm is forgotten."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What an arm did on one task: the mean over its rollouts, and their number.

    `stratum` is what tasks are alike in, such as their category. `variance` is the unbiased variance of single
    rollouts; None where it is not known.
    """

    arm: str
    block: str
    stratum: str
    value: float
    rollouts: int
    variance: float | None = None


@dataclass(frozen=True)
class Posterior:
    """What is known of the arms, by name; the arm `plain` is the zero. A value: `after` gives another one.

    `prior` is τ. `noise` is the variance of one rollout that is assumed at first.
    """

    plain: str
    prior: float = 0.1
    discount: float = 0.8
    noise: float = NOISE
    arms: tuple[str, ...] = ()
    information_AA: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """S without the plain arm, discounted."""
    evidence_A: Floats = field(default_factory=lambda: np.zeros(0))
    """b without the plain arm, discounted."""
    within: tuple[float, float] = (0.0, 0.0)
    """Sum of squares of rollouts around the mean of their cell, and its degrees of freedom, discounted."""
    between: tuple[float, float] = (0.0, 0.0)
    """The same of cells around what task and arm explain, a stratum at a time."""

    @property
    def variance(self) -> float:
        """σ², of one rollout: from what the differences between arms leave unexplained, pooled over arms and windows.

        A scaled inverse χ² around the variance within cells (Bayesian Data Analysis, section 3.3), so that it is known
        where no arm has played enough tasks of a stratum. Arms may differ in how much they help a stratum.
        """
        start = (NOISE_WEIGHT * self.noise + self.within[0]) / (NOISE_WEIGHT + self.within[1])
        return (NOISE_WEIGHT * start + self.between[0]) / (NOISE_WEIGHT + self.between[1])

    def after(self, cells: Sequence[Cell]) -> Posterior:
        """The posterior after a window with these cells."""
        found = self._discounted(sorted({cell.arm for cell in cells} - {self.plain}))
        information, evidence = found.information_AA.copy(), found.evidence_A.copy()
        squares, freedom = found.between
        for _, alike in groupby(sorted(cells, key=attrgetter("stratum", "block")), key=attrgetter("stratum")):
            names, sums_KK, right_K, total, contrasts = _reduced(list(alike))
            kept = [place for place, name in enumerate(names) if name != self.plain]
            at = [found.arms.index(names[place]) for place in kept]
            information[np.ix_(at, at)] += sums_KK[np.ix_(kept, kept)]
            evidence[at] += right_K[kept]
            fitted = np.linalg.pinv(sums_KK, hermitian=True)
            squares += max(0.0, total - float(right_K @ fitted @ right_K))
            freedom += contrasts - int(np.linalg.matrix_rank(sums_KK, hermitian=True))
        inside = [
            (cell.variance * (cell.rollouts - 1), cell.rollouts - 1) for cell in cells if cell.variance is not None
        ]
        within = (found.within[0] + sum(each for each, _ in inside), found.within[1] + sum(n for _, n in inside))
        return replace(
            found, information_AA=information, evidence_A=evidence, within=within, between=(squares, freedom)
        )

    def moments(self, arms: Sequence[str]) -> tuple[Floats, Floats]:
        """Means (K) and covariances (K, K) of these arms' values. An arm that never played has the prior's."""
        known = {name: place for place, name in enumerate(self.arms)}
        precision = self.information_AA / self.variance + np.eye(len(self.arms)) / self.prior**2
        covariance = np.linalg.inv(precision)
        means = covariance @ self.evidence_A / self.variance
        means_K, covariances_KK = np.zeros(len(arms)), np.zeros((len(arms), len(arms)))
        new = [name for name in dict.fromkeys(arms) if name not in known and name != self.plain]
        for row, name in enumerate(arms):
            if name in known:
                means_K[row] = means[known[name]]
            for column, other in enumerate(arms):
                if name in known and other in known:
                    covariances_KK[row, column] = covariance[known[name], known[other]]
                elif name == other and name in new:
                    covariances_KK[row, column] = self.prior**2
        return means_K, covariances_KK

    def knows(self, arm: str) -> bool:
        """Whether the arm has played a task with another arm, and not too long ago."""
        return arm in self.arms and float(self.information_AA[self.arms.index(arm), self.arms.index(arm)]) > 0

    def probability_above(self, arm: str, other: str, margin: float = 0.0) -> float:
        """The probability that an arm's value is more than `margin` above that of another."""
        (mean, base), covariance = self.moments([arm, other])
        variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
        distance = float(mean - base - margin)
        if variance <= 0:
            return float(distance > 0)
        return normal_cdf(distance / math.sqrt(variance))

    def share_out(self, arms: Sequence[str], slots: int, generator: np.random.Generator) -> list[int]:
        """Thompson sampling: how many of `slots` each arm gets, a draw of all values deciding about one slot.

        Where there are enough, each arm has one before the draws begin.
        """
        first = int(slots >= len(arms))
        counts = [first] * len(arms)
        means_K, covariances_KK = self.moments(arms)
        drawn_SK = generator.multivariate_normal(means_K, covariances_KK, size=slots - sum(counts), method="eigh")
        for best in drawn_SK.argmax(axis=1):
            counts[int(best)] += 1
        return counts

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep, as JSON values."""
        return {
            "arms": list(self.arms),
            "information": self.information_AA.tolist(),
            "evidence": self.evidence_A.tolist(),
            "within": list(self.within),
            "between": list(self.between),
        }

    def with_state(self, state: Mapping[str, Any]) -> Posterior:
        """The inverse of `to_dict`, under the settings of this one."""
        size = len(state["arms"])
        return replace(
            self,
            arms=tuple(state["arms"]),
            information_AA=np.array(state["information"], dtype=np.float64).reshape(size, size),
            evidence_A=np.array(state["evidence"], dtype=np.float64),
            within=tuple(state["within"]),
            between=tuple(state["between"]),
        )

    def _discounted(self, played: Sequence[str]) -> Posterior:
        """A window later, with room for the arms that played, and without those of which too little is left."""
        information, evidence = self.discount * self.information_AA, self.discount * self.evidence_A
        left = {name: float(information[place, place]) for place, name in enumerate(self.arms)}
        most = sorted((name for name in left if name not in played), key=lambda name: -left[name])
        others = [name for name in most[: max(0, MOST_ARMS - len(played))] if left[name] >= LEAST_INFORMATION]
        names = (
            *(name for name in self.arms if name in others or name in played),
            *(name for name in played if name not in left),
        )
        at = [place for place, name in enumerate(names) if name in left]
        source = [self.arms.index(names[place]) for place in at]
        wide, right = np.zeros((len(names), len(names))), np.zeros(len(names))
        wide[np.ix_(at, at)], right[at] = information[np.ix_(source, source)], evidence[source]
        sums = [(self.discount * squares, self.discount * freedom) for squares, freedom in (self.within, self.between)]
        return replace(self, arms=names, information_AA=wide, evidence_A=right, within=sums[0], between=sums[1])


def _reduced(cells: Sequence[Cell]) -> tuple[list[str], Floats, Floats, float, int]:
    """The arms of these cells, S, b, the sum of squares within blocks, and the degrees of freedom that blocks leave."""
    names = sorted({cell.arm for cell in cells})
    sums_KK, right_K = np.zeros((len(names), len(names))), np.zeros(len(names))
    total, contrasts = 0.0, 0
    for _, block in groupby(cells, key=attrgetter("block")):
        found = list(block)
        at = [names.index(cell.arm) for cell in found]
        n_K = np.array([cell.rollouts for cell in found], dtype=np.float64)
        away_K = np.array([cell.value for cell in found]) - float(
            np.average([cell.value for cell in found], weights=n_K)
        )
        sums_KK[np.ix_(at, at)] += np.diag(n_K) - np.outer(n_K, n_K) / n_K.sum()
        right_K[at] += n_K * away_K
        total += float(n_K @ away_K**2)
        contrasts += len(found) - 1
    return names, sums_KK, right_K, total, contrasts


def choose_by_posterior(
    posterior: Posterior, arms: Sequence[str], incumbent: str, *, margin: float, promote_at: float
) -> str:
    """The arm that stays: the best of those that are better by `margin` with a probability above `promote_at`.

    The incumbent stays where there is none. One that never played has the prior's value, so that it bars no other.
    """
    better = [
        arm for arm in arms if arm != incumbent and posterior.probability_above(arm, incumbent, margin) > promote_at
    ]
    if not better:
        return incumbent
    means_K, _ = posterior.moments(better)
    return better[int(means_K.argmax())]


def most_that_can_be_told(posterior: Posterior, rollouts: int, most: int, *, beside: int, promote_at: float) -> int:
    """How many new arms a window can tell apart, at most `most`; `beside` arms share its `rollouts` in any case.

    With n rollouts an arm, the difference of two has the standard error s = √(2σ²/n). New arms can be told apart where
    one that seems to be worth two deviations of the prior, 2τ, would be believed to be better than an arm of value 0:
    Φ(2τ² / (s·√(τ² + s²))) > `promote_at`.
    """
    prior = posterior.prior
    for new in range(most, 0, -1):
        error = math.sqrt(2 * posterior.variance * (new + beside) / max(1, rollouts))
        if normal_cdf(2 * prior**2 / (error * math.sqrt(prior**2 + error**2))) > promote_at:
            return new
    return 0


def normal_cdf(value: float) -> float:
    """Φ, the distribution function of the standard normal."""
    return 0.5 * (1 + math.erf(value / math.sqrt(2)))
