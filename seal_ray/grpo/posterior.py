"""What arms are worth, from tasks that they have in common: a Gaussian posterior over windows, with a discount.

The value of an arm is how far its success lies above that of the plain arm, whose value is 0, in the mean over strata
(categories of tasks). The model is that of a block design, in which a task is a block: `y = u_task + θ_arm,stratum +
noise`, where `u` is anything and the noise of a mean of n rollouts has the variance σ²/n. With u taken out, the arms
that played a task with n rollouts each (a vector n, its sum N) add, in the task's stratum,

    S += diag(n) − n nᵀ / N        b += n · (y − Σ n y / N)

(intra-block equations: Montgomery, Design and Analysis of Experiments, section 4.4, here with weights). A task that one
arm alone played adds nothing. The prior of a value is N(0, τ²); half of its variance is that of the arm, half that of
how arms differ in what they do for a stratum, so that an arm that met one stratum more often is not judged by it:
cov(θ_arm,c , θ_arm,d) = τ²/2 · (1 + C · [c = d]) with C strata. The posterior is Gaussian (Gelman et al., Bayesian Data
Analysis, 3rd edition, section 14.8):

    precision = S / σ² + prior⁻¹    mean = precision⁻¹ · b / σ²

σ² is that of all strata, or each stratum has one of its own, drawn towards that of all: where the plain arm never
succeeds, few successes tell much. All sums are multiplied by a discount between 0 and 1 once a window, since the policy
that plays changes (discounted Thompson sampling: Raj and Kalyani, arXiv 1707.09727).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any

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
"""Degrees of freedom that an assumed variance counts for, beside those that were measured."""
STRATUM_WEIGHT = 64.0
"""Degrees of freedom that the variance of all strata counts for in the variance of one."""
MOST_ARMS = 32
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

    `prior` is τ. `noise` is the variance of one rollout that is assumed at first. With `own_noise` each stratum has a
    variance of its own.
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
    """The same of cells around what task and arm explain."""

    @property
    def variance(self) -> float:
        """σ², of one rollout: from what the differences between arms leave unexplained, pooled over all that was seen.

        A scaled inverse χ² around the variance within cells (Bayesian Data Analysis, section 3.3), so that it is known
        where no arm has played enough tasks of a stratum. Arms may differ in how much they help a stratum.
        """
        within, between = self.within_C2.sum(axis=0), self.between_C2.sum(axis=0)
        start = (NOISE_WEIGHT * self.noise + within[0]) / (NOISE_WEIGHT + within[1])
        return float((NOISE_WEIGHT * start + between[0]) / (NOISE_WEIGHT + between[1]))

    @property
    def variances(self) -> Floats:
        """σ² of each stratum (C): that of all of them, or an inverse χ² around it, so that few rollouts say little."""
        if not self.own_noise:
            return np.full(len(self.strata), self.variance)
        squares_C, freedom_C = (self.within_C2 + self.between_C2).T
        found: Floats = (STRATUM_WEIGHT * self.variance + squares_C) / (STRATUM_WEIGHT + freedom_C)
        return found

    def after(self, cells: Sequence[Cell]) -> Posterior:
        """The posterior after a window with these cells."""
        found = self._discounted(
            sorted({cell.arm for cell in cells} - {self.plain}), sorted({cell.stratum for cell in cells})
        )
        information, evidence = found.information_CAA.copy(), found.evidence_CA.copy()
        within, between = found.within_C2.copy(), found.between_C2.copy()
        for stratum, alike in groupby(sorted(cells, key=attrgetter("stratum", "block")), key=attrgetter("stratum")):
            names, sums_AA, right_A, total, contrasts = _reduced(list(alike))
            kept = [place for place, name in enumerate(names) if name != self.plain]
            at, c = [found.arms.index(names[place]) for place in kept], found.strata.index(stratum)
            information[c][np.ix_(at, at)] += sums_AA[np.ix_(kept, kept)]
            evidence[c, at] += right_A[kept]
            fitted = np.linalg.pinv(sums_AA, hermitian=True)
            between[c] += (
                max(0.0, total - float(right_A @ fitted @ right_A)),
                contrasts - int(np.linalg.matrix_rank(sums_AA, hermitian=True)),
            )
        for cell in cells:
            if cell.variance is not None:
                within[found.strata.index(cell.stratum)] += (cell.variance * (cell.rollouts - 1), cell.rollouts - 1)
        return replace(found, information_CAA=information, evidence_CA=evidence, within_C2=within, between_C2=between)

    def _prior_of(self, strata: int) -> Floats:
        """Covariance (C, C) of what an arm does for each stratum."""
        return self.prior**2 / 2 * (1 + strata * np.eye(strata))

    @cached_property
    def _joint(self) -> tuple[Floats, Floats]:
        """Means (C * A) and covariances of what all arms that are known do for each stratum."""
        strata, arms = self.evidence_CA.shape
        precision = np.kron(np.linalg.inv(self._prior_of(strata)), np.eye(arms))
        variances_C = self.variances
        for c in range(strata):
            inner = slice(c * arms, (c + 1) * arms)
            precision[inner, inner] += self.information_CAA[c] / variances_C[c]
        covariance = np.linalg.inv(precision)
        return covariance @ (self.evidence_CA / variances_C[:, None]).ravel(), covariance

    def moments(self, arms: Sequence[str], stratum: str | None = None) -> tuple[Floats, Floats]:
        """Means (A) and covariances (A, A) of these arms' values, or of what they do for one stratum.

        An arm that never played has the prior's, and so have all in a stratum that was never met.
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
        for row, name in enumerate(arms):
            if name in known:
                means_A[row] = known_means[known[name]]
            for column, other in enumerate(arms):
                if name in known and other in known:
                    covariances_AA[row, column] = known_covariances[known[name], known[other]]
                elif name == other and name not in known and name != self.plain:
                    covariances_AA[row, column] = unknown
        return means_A, covariances_AA

    def information(self, arm: str) -> float:
        """How many rollouts' worth of comparison there is about an arm; 0 where it is not known."""
        return float(self.information_CAA[:, at, at].sum()) if (at := self._place(arm)) is not None else 0.0

    def knows(self, arm: str) -> bool:
        """Whether the arm has played a task with another arm, and not too long ago."""
        return self.information(arm) > 0

    def _place(self, arm: str) -> int | None:
        return self.arms.index(arm) if arm in self.arms else None

    def probability_above(self, arm: str, other: str, margin: float = 0.0) -> float:
        """The probability that an arm's value is more than `margin` above that of another."""
        (mean, base), covariance = self.moments([arm, other])
        variance = covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
        distance = float(mean - base - margin)
        if variance <= 0:
            return float(distance > 0)
        return normal_cdf(distance / math.sqrt(variance))

    def share_out(self, arms: Sequence[str], slots: int, generator: np.random.Generator) -> list[int]:
        """Top-two Thompson sampling: how many of `slots` each arm gets, a draw of all values deciding about one slot.

        A slot goes to the best or to the second best arm of its draw with equal probability, since an arm is to be told
        from its rivals (Russo, arXiv 1602.08448); plain Thompson sampling settles on one. Before, each
        arm gets as many as go evenly into half of the slots.
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
        """The place of the arm that plays each of these tasks, of which the strata are given.

        Thompson sampling: it is the best one of a draw of what arms do for that stratum.
        """
        moments = {stratum: self.moments(arms, stratum) for stratum in set(strata)}
        found = []
        for stratum in strata:
            means_A, covariances_AA = moments[stratum]
            drawn_A = generator.multivariate_normal(means_A, covariances_AA, method="eigh")
            found.append(int(drawn_A.argmax()))
        return found

    def to_dict(self) -> dict[str, Any]:
        """What a checkpoint must keep, as JSON values."""
        return {
            "arms": list(self.arms),
            "strata": list(self.strata),
            "information": self.information_CAA.tolist(),
            "evidence": self.evidence_CA.tolist(),
            "within": self.within_C2.tolist(),
            "between": self.between_C2.tolist(),
        }

    def with_state(self, state: Mapping[str, Any]) -> Posterior:
        """The inverse of `to_dict`, under the settings of this one."""
        strata = len(state["strata"])
        shape = (strata, len(state["arms"]))
        return replace(
            self,
            arms=tuple(state["arms"]),
            strata=tuple(state["strata"]),
            information_CAA=np.array(state["information"], dtype=np.float64).reshape(*shape, shape[1]),
            evidence_CA=np.array(state["evidence"], dtype=np.float64).reshape(shape),
            within_C2=np.array(state["within"], dtype=np.float64).reshape(strata, 2),
            between_C2=np.array(state["between"], dtype=np.float64).reshape(strata, 2),
        )

    def _discounted(self, played: Sequence[str], strata: Sequence[str]) -> Posterior:
        """A window later, with room for what was played, and without the arms of which too little is left."""
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
        sums = [np.zeros((len(layers), 2)) for _ in range(2)]
        for new, before in zip(sums, (self.within_C2, self.between_C2), strict=True):
            new[:old] = self.discount * before
        return replace(
            self,
            arms=tuple(names),
            strata=tuple(layers),
            information_CAA=information,
            evidence_CA=evidence,
            within_C2=sums[0],
            between_C2=sums[1],
        )


def _without(information_AA: Floats, evidence_A: Floats, kept: Sequence[int]) -> tuple[Floats, Floats]:
    """S and b of the kept arms, with the others integrated out under a flat prior, as tasks are in the block design.

    Their rows alone would say that what is forgotten was worth as much as the plain arm.
    """
    gone = [place for place in range(len(evidence_A)) if place not in kept]
    between = information_AA[np.ix_(kept, gone)] @ np.linalg.pinv(information_AA[np.ix_(gone, gone)], hermitian=True)
    return (
        information_AA[np.ix_(kept, kept)] - between @ information_AA[np.ix_(gone, kept)],
        evidence_A[kept] - between @ evidence_A[gone],
    )


def _reduced(cells: Sequence[Cell]) -> tuple[list[str], Floats, Floats, float, int]:
    """The arms of these cells, S, b, the sum of squares within blocks, and the degrees of freedom that blocks leave."""
    names = sorted({cell.arm for cell in cells})
    sums_AA, right_A = np.zeros((len(names), len(names))), np.zeros(len(names))
    total, contrasts = 0.0, 0
    for _, block in groupby(cells, key=attrgetter("block")):
        found = list(block)
        at = [names.index(cell.arm) for cell in found]
        n_A = np.array([cell.rollouts for cell in found], dtype=np.float64)
        away_A = np.array([cell.value for cell in found]) - float(
            np.average([cell.value for cell in found], weights=n_A)
        )
        sums_AA[np.ix_(at, at)] += np.diag(n_A) - np.outer(n_A, n_A) / n_A.sum()
        right_A[at] += n_A * away_A
        total += float(n_A @ away_A**2)
        contrasts += len(found) - 1
    return names, sums_AA, right_A, total, contrasts


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
    means_A, _ = posterior.moments(better)
    return better[int(means_A.argmax())]


def max_distinguishable_arms(
    posterior: Posterior, rollouts: int, most: int, *, beside: int, margin: float, promote_at: float
) -> int:
    """How many new arms a window can tell apart, at most `most`; `beside` arms share its `rollouts` in any case.

    With n rollouts an arm, the difference of two has the standard error s = √(2σ²/n). New arms can be told apart where
    one whose success is two deviations of the prior above that of an arm of value 0 would be promoted: where
    Φ((2τ · τ²/(τ² + s²) − margin) / (τ s / √(τ² + s²))) is above `promote_at`.
    """
    prior = posterior.prior
    for new in range(most, 0, -1):
        squared = 2 * posterior.variance * (new + beside) / max(1, rollouts)
        mean = 2 * prior * prior**2 / (prior**2 + squared)
        deviation = prior * math.sqrt(squared / (prior**2 + squared))
        if normal_cdf((mean - margin) / deviation) > promote_at:
            return new
    return 0


def normal_cdf(value: float) -> float:
    """Φ, the distribution function of the standard normal."""
    return 0.5 * (1 + math.erf(value / math.sqrt(2)))
