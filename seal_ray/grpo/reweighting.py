"""Diagnosis-guided reweighting: labels to weights, weights to advantages (SEAL eq. 10-12). Signs never change.

The tables ρ hold the weight of each label, `DynamicWeights` lets a table follow the failure profile, and `reweighted`
applies it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from envs.diagnosis import Diagnosis, Label
from envs.errors import UserError, unknown_value

RhoName = Literal["paper", "default"]
ApplyTo = Literal["all", "positive", "negative"]
_APPLY_TO = ("all", "positive", "negative")

NOT_REACHED = str(Label.NOT_REACHED)
"""The label of a turn that was not played; rollouts may carry it, and neither table weighs it."""

RHO_PAPER: Mapping[str, float] = MappingProxyType(
    {
        "spurious_tool_call": 2.0,
        "correct_abstention": 1.8,
        "empty_turn_model_response": 1.5,
        "state_mismatch": 1.0,
        "pass": 1.0,
        "response_mismatch": 0.9,
        "instance_mismatch": 0.6,
    }
)
"""SEAL's Table 6 (arXiv 2605.24426), over `TurnDiagnosis.paper_label`. Our verifier has no "instance_mismatch"."""

RHO_DEFAULT: Mapping[str, float] = MappingProxyType(
    {
        # The right action, to do nothing, is unambiguous: the sharpest failure there is (the paper's value).
        str(Label.SPURIOUS_TOOL_CALL): 2.0,
        # Its counterpart, so that abstaining is learnt from both sides (the paper's value).
        str(Label.CORRECT_ABSTENTION): 1.8,
        # The solver called nothing where it had to: the paper's empty turn, and needed tools beside it.
        str(Label.MISSING_TOOL_CALL): 1.5,
        # The error stood in the context and was not acted upon: as clear a gap as not acting at all.
        str(Label.RECOVERY_FAILURE): 1.5,
        # Form, not judgement: learnt fast anyway, but until then nothing else of the turn counts.
        str(Label.INVALID_TOOL_CALL): 1.2,
        # The right tool in a wrong form; the plain reward covers it.
        str(Label.ARGUMENT_MISMATCH): 1.0,
        # Many causes under one name (the paper's value).
        str(Label.STATE_MISMATCH): 1.0,
        # The measure of the others (the paper's value).
        str(Label.PASS): 1.0,
        # The state is right; a result is missing, often an unimportant one (the paper's value).
        str(Label.RESPONSE_MISMATCH): 0.9,
        # The fault lies in an earlier turn, which has a label of its own (the paper's value for its ambiguous label).
        str(Label.INHERITED_STATE): 0.6,
    }
)
"""Our table, over `Label`: the paper's values where a label is the paper's, and values near them where it is finer."""

_TABLES: Mapping[str, Mapping[str, float]] = {"paper": RHO_PAPER, "default": RHO_DEFAULT}


def rho_table(name: str, overrides: Mapping[str, float] | None = None) -> dict[str, float]:
    """The named table, with some weights replaced.

    Raises `UserError` for a name or a label that is not known, and for a weight that is not a finite number above 0.
    """
    if name not in _TABLES:
        raise unknown_value("rho", name, _TABLES)
    table = dict(_TABLES[name])
    for label, weight in (overrides or {}).items():
        if label not in table:
            raise unknown_value(f"rho overrides of the table {name!r}", label, table)
        if not math.isfinite(weight) or weight <= 0:
            raise UserError(f"rho overrides: {label}: {weight!r} is not allowed; a weight is a finite number above 0.")
        table[label] = float(weight)
    return table


def labels_of(diagnosis: Diagnosis, name: RhoName) -> tuple[str, ...]:
    """Each turn's label in the named table's words, or `NOT_REACHED`."""
    if name == "paper":
        return tuple(turn.paper_label for turn in diagnosis.turns)
    return tuple(str(label) for label in diagnosis.labels)


@dataclass(frozen=True, slots=True)
class ReweightingSettings:
    """How labels become weights. Raises `UserError` for values out of range."""

    low: float = 0.5
    """The smallest weight of a trajectory; at most 1."""
    high: float = 2.0
    """The largest; at least 1."""
    budget: float | None = None
    """Strength s, 0 to 1, of a reweighting that leaves the mean weight at 1; None lets the mean go where it goes."""
    apply_to: ApplyTo = "all"
    """Which advantages are scaled."""
    warm_up: int = 0
    """Steps at less than full weight: the distance of a weight to 1 grows linearly from 0 at step 0."""

    def __post_init__(self) -> None:
        if not 0 < self.low <= 1 <= self.high < float("inf"):
            raise UserError(f"low and high: {self.low!r} and {self.high!r} are not allowed; 0 < low ≤ 1 ≤ high.")
        if self.budget is not None and not 0 <= self.budget <= 1:
            raise UserError(f"budget: {self.budget!r} is not allowed; it lies between 0 and 1, or is none.")
        if self.apply_to not in _APPLY_TO:
            raise unknown_value("apply_to", self.apply_to, _APPLY_TO)
        if self.warm_up < 0:
            raise UserError(f"warm_up: {self.warm_up!r} is not allowed; it is at least 0.")


def trajectory_weight(labels: Sequence[str], rho: Mapping[str, float], *, low: float = 0.5, high: float = 2.0) -> float:
    """`w = clip(Σ_z p(z)·ρ(z), low, high)`, with p(z) the share of turns with label z (SEAL eq. 10-11).

    Turns that were not reached are left out of the mean; with none left, w = 1. A label that ρ does not list weighs 1.
    """
    usable = _usable(labels)
    if not usable:
        return 1.0
    return min(high, max(low, sum(rho.get(label, 1.0) for label in usable) / len(usable)))


def reweighted(
    advantages_J: Sequence[float] | NDArray[np.floating],
    labels_J: Sequence[Sequence[str]],
    settings: ReweightingSettings,
    rho: Mapping[str, float],
    step: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The advantages of J rollouts times their weights, and these weights: `Ã_j = w_j·A_j` (SEAL eq. 12).

    `labels_J` are each rollout's, in the words of `rho`; `step` counts the learner's steps from 0. The weights are

    1. `trajectory_weight`;
    2. with a budget s: `1 + s·(w − 1)`, clipped, then divided by the mean over the rollouts that have a usable label
       and an advantage that `apply_to` does not leave alone, so that reweighting moves weight about without adding any
       (SEAL's released code clips once more, which loses the mean again; here the mean is exact, and the rescaling may
       pass `low` and `high`);
    3. drawn towards 1 during warm-up (the released code has no weights at all in these steps);
    4. 1 for advantages that `apply_to` leaves alone.

    Raises `ValueError` where the lengths differ.
    """
    advantages = np.asarray(advantages_J, dtype=np.float64)
    if len(advantages) != len(labels_J):
        raise ValueError(f"{len(advantages)} advantages and {len(labels_J)} rollouts' labels")
    low, high = settings.low, settings.high
    weights = np.array([trajectory_weight(labels, rho, low=low, high=high) for labels in labels_J], dtype=np.float64)

    chosen = {"all": np.ones(len(weights), dtype=bool), "positive": advantages > 0, "negative": advantages < 0}
    scaled = chosen[settings.apply_to]
    weighed = scaled & np.array([bool(_usable(labels)) for labels in labels_J], dtype=bool)
    if settings.budget is not None and weighed.any():
        shrunk = np.clip(1 + settings.budget * (weights[weighed] - 1), low, high)
        weights[weighed] = shrunk / shrunk.mean()

    if step < settings.warm_up:
        weights = 1 + (weights - 1) * (step / settings.warm_up)
    weights = np.where(scaled, weights, 1.0)
    return advantages * weights, weights


class DynamicWeights:
    """ρ', an exponential moving average towards targets that grow with a label's prevalence and its failure.

    For a label z with count n_z of the N counted ones and mean reward r̄_z (SEAL's released code, arXiv 2605.24426):

        target_z = clip(ρ_z · (1 + α · (n_z / N) · (1 − r̄_z) · min(1, n_z / n_conf)), w_min, w_max)
        ρ'_z ← (1 − β) · ρ'_z + β · target_z, starting at ρ_z; "pass" keeps its ρ.

    A label that did not occur goes back towards its own ρ. Raises `UserError` for settings out of range.
    """

    def __init__(
        self,
        rho: Mapping[str, float],
        *,
        alpha: float = 1.0,
        beta: float = 0.25,
        n_conf: int = 32,
        w_min: float = 0.5,
        w_max: float = 2.0,
    ) -> None:
        if not (math.isfinite(alpha) and alpha >= 0):
            raise UserError(f"alpha: {alpha!r} is not allowed; it is a finite number of at least 0.")
        if not 0 < beta <= 1:
            raise UserError(f"beta: {beta!r} is not allowed; it lies above 0 and is at most 1.")
        if n_conf < 1:
            raise UserError(f"n_conf: {n_conf!r} is not allowed; it is at least 1.")
        if not 0 < w_min <= w_max < math.inf:
            raise UserError(f"w_min and w_max: {w_min!r} and {w_max!r} are not allowed; 0 < w_min ≤ w_max.")
        self._rho = dict(rho)
        self._weights = dict(rho)
        self._alpha, self._beta, self._n_conf = alpha, beta, n_conf
        self._w_min, self._w_max = w_min, w_max

    @property
    def rho(self) -> dict[str, float]:
        """ρ' as it stands, to be used in place of ρ."""
        return dict(self._weights)

    def update(self, counts: Mapping[str, int], reward_means: Mapping[str, float]) -> None:
        """Moves ρ' by one window: turns of each label, and mean reward (0 to 1) of the rollouts in which it occurs.

        Labels outside the table, such as turns that were not reached, are left out of N. A label that was counted must
        have a mean reward; `KeyError` otherwise.
        """
        total = sum(counts.get(label, 0) for label in self._rho)
        for label, rho in self._rho.items():
            if label == Label.PASS:
                continue
            count = counts.get(label, 0)
            pressure = count / total * (1 - reward_means[label]) * min(1.0, count / self._n_conf) if count else 0.0
            target = min(self._w_max, max(self._w_min, rho * (1 + self._alpha * pressure)))
            self._weights[label] = (1 - self._beta) * self._weights[label] + self._beta * target

    def state_dict(self) -> dict[str, Any]:
        """What training must go on from."""
        return {"weights": dict(self._weights)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The inverse of `state_dict`. Raises `ValueError` where the state is of another table."""
        weights = {str(label): float(weight) for label, weight in state["weights"].items()}
        if weights.keys() != self._rho.keys():
            raise ValueError(f"a state over {sorted(weights)} is not one of a table over {sorted(self._rho)}")
        self._weights = weights


def _usable(labels: Sequence[str]) -> list[str]:
    return [label for label in labels if label != NOT_REACHED]
