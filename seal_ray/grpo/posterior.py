"""The value of arms from tasks that they have in common: a Gaussian posterior over windows, with a discount.

An arm's value is its success minus that of the plain arm, averaged over strata (categories of tasks). The model is a
block design, in which a task is a block: `y = u_task + θ_arm,stratum + noise`, with any u; the noise of a mean of n
rollouts has the variance σ²/n. With u eliminated, the arms that played a task with n rollouts each (a vector n, its sum
N) add, in the task's stratum,

    S += diag(n) − n nᵀ / N        b += n · (y − Σ n y / N)

(intra-block equations: Montgomery, Design and Analysis of Experiments, section 4.4, here with weights). A task that
only one arm played adds nothing. The prior of a value is N(0, τ²), half of it shared by the strata of an arm:
cov(θ_arm,c , θ_arm,d) = τ²/2 · (1 + C · [c = d]) with C strata. The posterior is Gaussian (Gelman et al., Bayesian Data
Analysis, 3rd edition, section 14.8):

    precision = S / σ² + prior⁻¹    mean = precision⁻¹ · b / σ²

σ² is pooled over strata, or estimated for each stratum with shrinkage to the pooled one. All sums are multiplied by a
discount once a window, since the policy changes (discounted Thompson sampling: Raj and Kalyani, arXiv 1707.09727).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from statistics import NormalDist
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

PRIOR = 0.1
"""τ: standard deviation of an arm's value before it was played."""
DISCOUNT = 0.9
"""Weight of a window one window later."""
NOISE = 0.15
"""Variance of one rollout's success that is assumed before any was played."""
NOISE_WEIGHT = 16.0
"""Degrees of freedom of an assumed variance, added to the measured ones."""
STRATUM_WEIGHT = 64.0
"""Degrees of freedom of the pooled variance in the variance of one stratum."""
MOST_ARMS = 32
"""Largest number of arms in a posterior; the arms with the least information are dropped."""
LEAST_INFORMATION = 0.25
"""Effective rollouts below which an arm is dropped."""
_ARRAYS = ("information_CAA", "evidence_CA", "within_C2", "between_C2")
"""The arrays of a posterior, which a checkpoint has without their shapes."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One arm on one task (the block): the mean over its rollouts, and their number.

    `variance` is the unbiased variance of single rollouts; None if it is unknown.
    """

    arm: str
    block: str
    stratum: str
    value: float
    rollouts: int
    variance: float | None = None


@dataclass(frozen=True)
class Posterior:
    """The posterior of C strata and A arms, an immutable value: `after` returns the next one.

    The arm `plain` has the value 0. `prior` is τ. `noise` is the variance of one rollout that is assumed at first. With
    `own_noise` each stratum has its own variance.
    """

    plain: str
    prior: float = PRIOR
    discount: float = DISCOUNT
    noise: float = NOISE
    own_noise: bool = False
    arms: tuple[str, ...] = ()
    strata: tuple[str, ...] = ()
    information_CAA: Floats = field(default_factory=lambda: np.zeros((0, 0, 0)))
    """S of each stratum without the plain arm, discounted."""
    evidence_CA: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    """b of each stratum without the plain arm, discounted."""
    within_C2: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    """Sum of squares of rollouts around the mean of their cell, and its degrees of freedom, discounted."""
    between_C2: Floats = field(default_factory=lambda: np.zeros((0, 2)))
    """The same of cells around their fit by task and arm."""

    @property
    def variance(self) -> float:
        """σ² of one rollout: the residual variance, as a scaled inverse χ² around the variance within cells.

        Bayesian Data Analysis, section 3.3.
        """
        within, between = self.within_C2.sum(axis=0), self.between_C2.sum(axis=0)
        start = (NOISE_WEIGHT * self.noise + within[0]) / (NOISE_WEIGHT + within[1])
        return float((NOISE_WEIGHT * start + between[0]) / (NOISE_WEIGHT + between[1]))

    @property
    def variances(self) -> Floats:
        """σ² of each stratum (C): the pooled one, or with `own_noise` a scaled inverse χ² around it."""
        if not self.own_noise:
            return np.full(len(self.strata), self.variance)
        squares_C, freedom_C = (self.within_C2 + self.between_C2).T
        variances_C: Floats = (STRATUM_WEIGHT * self.variance + squares_C) / (STRATUM_WEIGHT + freedom_C)
        return variances_C

    def after(self, cells: Sequence[Cell]) -> Self:
        """The posterior after a window with these cells."""
        later = self._discounted(
            sorted({cell.arm for cell in cells} - {self.plain}), sorted({cell.stratum for cell in cells})
        )
        information, evidence = later.information_CAA.copy(), later.evidence_CA.copy()
        within, between = later.within_C2.copy(), later.between_C2.copy()
        for stratum, alike in groupby(sorted(cells, key=attrgetter("stratum", "block")), key=attrgetter("stratum")):
            names, sums_AA, right_A, total, contrasts = _reduced(list(alike))
            kept = [place for place, name in enumerate(names) if name != self.plain]
            at, c = [later.arms.index(names[place]) for place in kept], later.strata.index(stratum)
            information[c][np.ix_(at, at)] += sums_AA[np.ix_(kept, kept)]
            evidence[c, at] += right_A[kept]
            fitted = np.linalg.pinv(sums_AA, hermitian=True)
            between[c] += (
                max(0.0, total - float(right_A @ fitted @ right_A)),
                contrasts - int(np.linalg.matrix_rank(sums_AA, hermitian=True)),
            )
        for cell in cells:
            if cell.variance is not None:
                within[later.strata.index(cell.stratum)] += (cell.variance * (cell.rollouts - 1), cell.rollouts - 1)
        return replace(later, information_CAA=information, evidence_CA=evidence, within_C2=within, between_C2=between)

    def _prior_of(self, strata: int) -> Floats:
        """Prior covariance (C, C) of an arm's values in the strata."""
        return self.prior**2 / 2 * (1 + strata * np.eye(strata))

    @cached_property
    def _joint(self) -> tuple[Floats, Floats]:
        """Means (C * A) and covariances of the values of all `arms` in all `strata`."""
        strata, arms = self.evidence_CA.shape
        precision = np.kron(np.linalg.inv(self._prior_of(strata)), np.eye(arms))
        variances_C = self.variances
        for c in range(strata):
            inner = slice(c * arms, (c + 1) * arms)
            precision[inner, inner] += self.information_CAA[c] / variances_C[c]
        covariance = np.linalg.inv(precision)
        return covariance @ (self.evidence_CA / variances_C[:, None]).ravel(), covariance

    def moments(self, arms: Sequence[str], stratum: str | None = None) -> tuple[Floats, Floats]:
        """Means (A) and covariances (A, A) of these arms' values, or of their values in one stratum.

        An arm or a stratum that was never played has the prior's.
        """
        strata = max(1, len(self.strata))
        unknown = self.prior**2 if stratum is None else self._prior_of(strata)[0, 0]
        known: dict[str, int] = {}
        known_means, known_covariances = np.zeros(0), np.zeros((0, 0))
        if self.arms and self.strata and (stratum is None or stratum in self.strata):
            known = {name: place for place, name in enumerate(self.arms)}
            weight_C = np.full(strata, 1 / strata) if stratum is None else np.eye(strata)[self.strata.index(stratum)]
            averaging = np.kron(weight_C[None], np.eye(len(self.arms)))
            means, covariance = self._joint
            known_means, known_covariances = averaging @ means, averaging @ covariance @ averaging.T
        means_A, covariances_AA = np.zeros(len(arms)), np.zeros((len(arms), len(arms)))
        rows = [row for row, name in enumerate(arms) if name in known]
        places = [known[arms[row]] for row in rows]
        means_A[rows] = known_means[places]
        covariances_AA[np.ix_(rows, rows)] = known_covariances[np.ix_(places, places)]
        for row, name in enumerate(arms):
            if name not in known and name != self.plain:
                covariances_AA[row, [other == name for other in arms]] = unknown
        return means_A, covariances_AA

    def information(self, arm: str) -> float:
        """Effective number of rollouts that compare an arm with others; 0 if it is unknown."""
        if arm not in self.arms:
            return 0.0
        place = self.arms.index(arm)
        return float(self.information_CAA[:, place, place].sum())

    def knows(self, arm: str) -> bool:
        """Whether the arm has played a task with another arm, and not too long ago."""
        return self.information(arm) > 0

    def probability_above(self, arm: str, other: str, margin: float = 0.0) -> float:
        """The probability that an arm's value is more than `margin` above that of another."""
        (mean, base), covariance = self.moments([arm, other])
        variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
        distance = float(mean - base - margin)
        if variance <= 0:
            return float(distance > 0)
        return NormalDist().cdf(distance / math.sqrt(variance))

    def share_out(self, arms: Sequence[str], slots: int, generator: np.random.Generator) -> list[int]:
        """Top-two Thompson sampling (Russo, arXiv 1602.08448): how many of `slots` each arm gets.

        Up to half of the slots are divided evenly. Each other slot goes to the best or second best arm of a draw of all
        values, with equal probability; plain Thompson sampling would settle on one arm.
        """
        each = slots // (2 * len(arms))
        counts = [each] * len(arms)
        left = slots - sum(counts)
        means_A, covariances_AA = self.moments(arms)
        drawn_SA = generator.multivariate_normal(means_A, covariances_AA, size=left, method="eigh")
        ranks_SA = (-drawn_SA).argsort(axis=1)
        for ranks, rank in zip(ranks_SA, generator.integers(min(2, len(arms)), size=left), strict=True):
            counts[int(ranks[rank])] += 1
        return counts

    def share_by_stratum(self, arms: Sequence[str], strata: Sequence[str], generator: np.random.Generator) -> list[int]:
        """The place of the arm for each task, by its stratum: Thompson sampling by the values in the stratum."""
        moments = {stratum: self.moments(arms, stratum) for stratum in set(strata)}
        draws = (generator.multivariate_normal(*moments[stratum], method="eigh") for stratum in strata)
        return [int(drawn_A.argmax()) for drawn_A in draws]

    def to_dict(self) -> dict[str, Any]:
        """JSON values for a checkpoint."""
        arrays = {name.rpartition("_")[0]: getattr(self, name).tolist() for name in _ARRAYS}
        return {"arms": list(self.arms), "strata": list(self.strata), **arrays}

    def with_state(self, state: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`, under the settings of this one."""
        strata, arms = len(state["strata"]), len(state["arms"])
        arrays: dict[str, Any] = {
            name: np.array(state[name.rpartition("_")[0]], dtype=np.float64).reshape(strata, *shape)
            for name, shape in zip(_ARRAYS, ((arms, arms), (arms,), (2,), (2,)), strict=True)
        }
        return replace(self, arms=tuple(state["arms"]), strata=tuple(state["strata"]), **arrays)

    def _discounted(self, played: Sequence[str], strata: Sequence[str]) -> Self:
        """A window later, with room for new arms and strata, and without arms that have too little information."""
        left = {name: self.discount * self.information(name) for name in self.arms}
        most = sorted((name for name in left if name not in played), key=lambda name: -left[name])
        others = [name for name in most[: max(0, MOST_ARMS - len(played))] if left[name] >= LEAST_INFORMATION]
        names = [name for name in left if name in others or name in played]
        source = [self.arms.index(name) for name in names]
        names += [name for name in played if name not in left]
        layers = [*self.strata, *(name for name in strata if name not in self.strata)]
        information, evidence = np.zeros((len(layers), len(names), len(names))), np.zeros((len(layers), len(names)))
        old, kept = len(self.strata), len(source)
        for c in range(old):
            left_AA, left_A = _without(self.information_CAA[c], self.evidence_CA[c], source)
            information[c, :kept, :kept], evidence[c, :kept] = self.discount * left_AA, self.discount * left_A
        more = ((0, len(layers) - old), (0, 0))
        return replace(
            self,
            arms=tuple(names),
            strata=tuple(layers),
            information_CAA=information,
            evidence_CA=evidence,
            within_C2=np.pad(self.discount * self.within_C2, more),
            between_C2=np.pad(self.discount * self.between_C2, more),
        )


def _without(information_AA: Floats, evidence_A: Floats, kept: Sequence[int]) -> tuple[Floats, Floats]:
    """S and b of the kept arms, with the others integrated out under a flat prior."""
    dropped = [place for place in range(len(evidence_A)) if place not in kept]
    inverse = np.linalg.pinv(information_AA[np.ix_(dropped, dropped)], hermitian=True)
    between = information_AA[np.ix_(kept, dropped)] @ inverse
    return (
        information_AA[np.ix_(kept, kept)] - between @ information_AA[np.ix_(dropped, kept)],
        evidence_A[kept] - between @ evidence_A[dropped],
    )


def _reduced(cells: Sequence[Cell]) -> tuple[list[str], Floats, Floats, float, int]:
    """The arms of these cells, S, b, the sum of squares within blocks, and its degrees of freedom."""
    names = sorted({cell.arm for cell in cells})
    sums_AA, right_A = np.zeros((len(names), len(names))), np.zeros(len(names))
    total, contrasts = 0.0, 0
    for _, block in groupby(cells, key=attrgetter("block")):
        played = list(block)
        at = [names.index(cell.arm) for cell in played]
        n_A = np.array([cell.rollouts for cell in played], dtype=np.float64)
        values_A = np.array([cell.value for cell in played])
        deviations_A = values_A - float(np.average(values_A, weights=n_A))
        sums_AA[np.ix_(at, at)] += np.diag(n_A) - np.outer(n_A, n_A) / n_A.sum()
        right_A[at] += n_A * deviations_A
        total += float(n_A @ deviations_A**2)
        contrasts += len(played) - 1
    return names, sums_AA, right_A, total, contrasts


def choose_by_posterior(
    posterior: Posterior, arms: Sequence[str], incumbent: str, *, margin: float, promote_at: float
) -> str:
    """The next incumbent: the best arm that is better by `margin` with a probability above `promote_at`.

    The incumbent stays if there is none.
    """
    rivals = [arm for arm in arms if arm != incumbent]
    better = [arm for arm in rivals if posterior.probability_above(arm, incumbent, margin) > promote_at]
    if not better:
        return incumbent
    means_A, _ = posterior.moments(better)
    return better[int(means_A.argmax())]


def max_distinguishable_arms(
    posterior: Posterior, rollouts: int, most: int, *, others: int, margin: float, promote_at: float
) -> int:
    """Largest number of new arms, up to `most`, that a window can distinguish; `others` arms share its `rollouts` too.

    With n rollouts an arm, the difference of two has the standard error s = √(2σ²/n). Arms are distinguishable if an
    arm that is better by two deviations of the prior would be promoted: Φ((2τ · τ²/(τ² + s²) − margin) /
    (τ s / √(τ² + s²))) > `promote_at`.
    """
    prior = posterior.prior
    for new in range(most, 0, -1):
        squared = 2 * posterior.variance * (new + others) / max(1, rollouts)
        mean = 2 * prior * prior**2 / (prior**2 + squared)
        deviation = prior * math.sqrt(squared / (prior**2 + squared))
        if NormalDist().cdf((mean - margin) / deviation) > promote_at:
            return new
    return 0
