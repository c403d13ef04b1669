"""Diagnosis-guided reweighting: labels to weights, weights to advantages (SEAL eq. 10-12). Signs never change."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from envs.diagnosis import Diagnosis, Label
from envs.task import JSON
from seal_ray.config.schema import ReweightingSection

RhoName = Literal["paper", "default"]
_CONFIDENT = 32
"""Number of turns with a label for the full step of its dynamic weight (`n_conf` of the released code)."""

NOT_REACHED = str(Label.NOT_REACHED)
"""The label of a turn that was not played; no table has a weight for it."""

RHO_PAPER: Mapping[str, float] = {
    "spurious_tool_call": 2.0,
    "correct_abstention": 1.8,
    "empty_turn_model_response": 1.5,
    "state_mismatch": 1.0,
    "pass": 1.0,
    "response_mismatch": 0.9,
    "instance_mismatch": 0.6,
}
"""SEAL's Table 6 (arXiv 2605.24426), over `TurnDiagnosis.paper_label`. Our verifier has no "instance_mismatch"."""

RHO_DEFAULT: Mapping[str, float] = {
    str(Label.SPURIOUS_TOOL_CALL): 2.0,  # the paper's value, as all that have no other comment
    str(Label.CORRECT_ABSTENTION): 1.8,
    str(Label.MISSING_TOOL_CALL): 1.5,  # the paper's empty turn, and turns that lack a needed tool
    str(Label.RECOVERY_FAILURE): 1.5,  # as clear a failure as a missing call, after an error in the context
    str(Label.INVALID_TOOL_CALL): 1.2,  # learnt fast, but the rest of the turn depends on it
    str(Label.ARGUMENT_MISMATCH): 1.0,  # the right tool in a wrong form; the plain reward covers it
    str(Label.STATE_MISMATCH): 1.0,
    str(Label.PASS): 1.0,
    str(Label.RESPONSE_MISMATCH): 0.9,
    str(Label.INHERITED_STATE): 0.6,  # the paper's value of its ambiguous label: an earlier turn failed
}
"""Our table, over `Label`: the paper's values for the paper's labels, and near ones for finer labels."""

_TABLES: Mapping[str, Mapping[str, float]] = {"paper": RHO_PAPER, "default": RHO_DEFAULT}


def rho_table(settings: ReweightingSection) -> dict[str, float]:
    """Label → weight: the named table, with the weights of the settings."""
    replaced = {"spurious_tool_call": settings.spurious_tool_call, "correct_abstention": settings.correct_abstention}
    return {**_TABLES[settings.rho], **{label: weight for label, weight in replaced.items() if weight is not None}}


def labels_of(diagnosis: Diagnosis, name: RhoName) -> tuple[str, ...]:
    """Each turn's label as in the named table, or `NOT_REACHED`."""
    if name == "paper":
        return tuple(turn.paper_label for turn in diagnosis.turns)
    return tuple(str(label) for label in diagnosis.labels)


def trajectory_weight(labels: Sequence[str], rho: Mapping[str, float], *, low: float = 0.5, high: float = 2.0) -> float:
    """`w = clip(Σ_z p(z)·ρ(z), low, high)`, with p(z) the share of reached turns with label z (SEAL eq. 10-11).

    A label that ρ lacks has the weight 1. Without reached turns, w = 1.
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

    A weight is `trajectory_weight`, or 1 if `apply_to` does not select the advantage. With a budget s it becomes
    `1 + s·(w − 1)`, clipped, divided by the mean over the selected rollouts with a reached turn; so the mean is 1, and
    weights can pass `low` and `high` (SEAL's released code clips again). Raises `ValueError` if the lengths differ.
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

    The weight of a label that did not occur moves back to ρ. r̄_z counts a rollout once; the released code, once a turn.
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
        """The weighted advantages of a round's J rollouts, and the weights, with one budget for all."""
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
        """Moves the dynamic weights towards their targets in the window, and starts a new window."""
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
        """Clears the observations."""
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
