"""Diagnosis-guided reweighting: labels to weights, weights to advantages (SEAL eq. 10-12). Signs never change.

The tables ρ hold the weight of each label; `Reweighter` lets a table follow the failure profile, and applies it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from envs.diagnosis import Diagnosis, Label
from envs.task import JSON
from seal_ray.config.schema import ReweightingSection

RhoName = Literal["paper", "default"]
_CONFIDENT = 32
"""Turns with a label at which a dynamic weight moves in full (`n_conf` of the released code)."""

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


def rho_table(settings: ReweightingSection) -> dict[str, float]:
    """Label → weight: the named table, with the weights that the settings replace."""
    replaced = {"spurious_tool_call": settings.spurious_tool_call, "correct_abstention": settings.correct_abstention}
    return {**_TABLES[settings.rho], **{label: weight for label, weight in replaced.items() if weight is not None}}


def labels_of(diagnosis: Diagnosis, name: RhoName) -> tuple[str, ...]:
    """Each turn's label in the named table's words, or `NOT_REACHED`."""
    if name == "paper":
        return tuple(turn.paper_label for turn in diagnosis.turns)
    return tuple(str(label) for label in diagnosis.labels)


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
    settings: ReweightingSection,
    rho: Mapping[str, float],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The advantages of J rollouts times their weights, and these weights: `Ã_j = w_j·A_j` (SEAL eq. 12).

    `labels_J` are each rollout's, in the words of `rho`. The weights are

    1. `trajectory_weight`;
    2. with a budget s: `1 + s·(w − 1)`, clipped, then divided by the mean over the rollouts that have a usable label
       and an advantage that `apply_to` selects, so that reweighting moves weight without adding any (SEAL's released
       code clips once more, which loses the mean again; here the mean is exact, and may pass `low` and `high`);
    3. 1 for advantages that `apply_to` does not select.

    Raises `ValueError` if the lengths differ.
    """
    advantages = np.asarray(advantages_J, dtype=np.float64)
    if len(advantages) != len(labels_J):
        raise ValueError(f"{len(advantages)} advantages and {len(labels_J)} rollouts' labels")
    low, high = settings.low, settings.high
    weights = np.array([trajectory_weight(labels, rho, low=low, high=high) for labels in labels_J], dtype=np.float64)
    selected = {"all": np.ones(len(weights), dtype=bool), "positive": advantages > 0, "negative": advantages < 0}
    scaled = selected[settings.apply_to]
    weighed = scaled & np.array([bool(_usable(labels)) for labels in labels_J], dtype=bool)
    if settings.budget is not None and weighed.any():
        shrunk = np.clip(1 + settings.budget * (weights[weighed] - 1), low, high)
        weights[weighed] = shrunk / shrunk.mean()
    weights = np.where(scaled, weights, 1.0)
    return advantages * weights, weights


class Reweighter:
    """The label weights of a run: the table ρ, and with `mode: dynamic` ρ', which follows the failure profile.

    For a label z with count n_z of the N counted ones and mean reward r̄_z (SEAL's released code, arXiv 2605.24426):

        target_z = clip(ρ_z · (1 + α · (n_z / N) · (1 − r̄_z) · min(1, n_z / 32)), low, high)
        ρ'_z ← (1 − β) · ρ'_z + β · target_z, starting at ρ_z; "pass" keeps its ρ.

    A label that did not occur returns towards its own ρ. The mean reward of a label counts a rollout once; the released
    code counts it once a turn.
    """

    def __init__(self, settings: ReweightingSection) -> None:
        self.settings = settings
        self._table = rho_table(settings)
        self._dynamic = dict(self._table)
        self.start_window()

    @property
    def rho(self) -> dict[str, float]:
        """Label → present weight; 1 for all with `mode: none`."""
        if self.settings.mode == "none":
            return dict.fromkeys(self._table, 1.0)
        return dict(self._dynamic if self.settings.mode == "dynamic" else self._table)

    def weigh(
        self, advantages_J: NDArray[np.float64], diagnoses_J: Sequence[Diagnosis]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The weighted advantages of a round's J rollouts, which share one budget of weight, and the weights."""
        if self.settings.mode == "none":
            return advantages_J, np.ones(len(advantages_J))
        labels_J = [labels_of(diagnosis, self.settings.rho) for diagnosis in diagnoses_J]
        return reweighted(advantages_J, labels_J, self.settings, self.rho)

    def observe(self, diagnosis: Diagnosis, reward: float) -> None:
        """Adds a rollout to the window."""
        labels = labels_of(diagnosis, self.settings.rho)
        self._turns.update(labels)
        for label in set(labels):
            self._rewards[label].append(reward)

    def follow(self) -> None:
        """Moves the dynamic weights by the window, and starts a new one."""
        settings = self.settings
        total = sum(self._turns[label] for label in self._table)
        for label, rho in self._table.items():
            if label == Label.PASS:
                continue
            count, pressure = self._turns[label], 0.0
            if count:
                mean_reward = sum(self._rewards[label]) / len(self._rewards[label])
                pressure = count / total * (1 - mean_reward) * min(1.0, count / _CONFIDENT)
            target = min(settings.high, max(settings.low, rho * (1 + settings.alpha * pressure)))
            self._dynamic[label] = (1 - settings.beta) * self._dynamic[label] + settings.beta * target
        self.start_window()

    def start_window(self) -> None:
        """Forgets what was observed."""
        self._turns: Counter[str] = Counter()
        self._rewards: dict[str, list[float]] = defaultdict(list)

    def get_state(self) -> dict[str, JSON]:
        """JSON values for a checkpoint."""
        return {"weights": dict(self._dynamic), "turns": dict(self._turns), "rewards": dict(self._rewards)}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """The inverse of `get_state`. Raises `ValueError` for the state of another table."""
        if state["weights"].keys() != self._dynamic.keys():
            raise ValueError(f"a state over {sorted(state['weights'])}, and a table over {sorted(self._dynamic)}")
        self._dynamic = dict(state["weights"])
        self._turns = Counter(state["turns"])
        self._rewards = defaultdict(list, {label: list(rewards) for label, rewards in state["rewards"].items()})


def _usable(labels: Sequence[str]) -> list[str]:
    return [label for label in labels if label != NOT_REACHED]
