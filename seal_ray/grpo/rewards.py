"""Rewards of the solver, by `environment.reward`: what training learns from. Evaluation counts success."""

from __future__ import annotations

from collections.abc import Callable

from envs.diagnosis import Diagnosis, TurnDiagnosis
from envs.registry import Registry
from envs.verifier import Outcome
from policies.trajectory import Trajectory

Reward = Callable[[Trajectory], float]
"""The reward of a finished dialogue, a finite number. It is computed once for each rollout."""
ABSTENTION_WEIGHT = 0.5
"""Weight of a turn without ground truth in the progress reward."""


def success(trajectory: Trajectory) -> float:
    """1 if the whole dialogue succeeded, else 0: the verifier's verdict (SEAL, arXiv 2605.24426)."""
    return trajectory.reward


def progress(trajectory: Trajectory) -> float:
    """The share of the dialogue's turns that passed."""
    return progress_reward(trajectory.diagnosis)


REWARDS: Registry[Reward] = Registry(
    "environment.reward",
    "seal_ray.rewards",
    {name: f"seal_ray.grpo.rewards:{name}" for name in ("success", "progress")},
)


def progress_reward(diagnosis: Diagnosis, *, abstention_weight: float = ABSTENTION_WEIGHT) -> float:
    """The share of a dialogue's turns that passed, 0 to 1; 1 exactly if all did.

    A turn with ground truth weighs 1 and passes as the verifier says. A turn without any weighs `abstention_weight` and
    passes if nothing was called. At a weight of 1, never calling a tool is a local optimum of this reward; SEAL's
    authors saw training fall into it (arXiv 2605.24426 and its released code). A turn that was not reached weighs 1 and
    did not pass: otherwise ending a dialogue early would pay.
    """
    total = passed = 0.0
    for turn in diagnosis.turns:
        weight = abstention_weight if turn.verdict.outcome is Outcome.UNSCORED else 1.0
        total += weight
        passed += weight * _passed(turn)
    return passed / total if total else float(diagnosis.success)


def _passed(turn: TurnDiagnosis) -> bool:
    if turn.verdict.outcome is Outcome.UNSCORED:
        # The paper's label depends on what was executed alone, so that finer labels never change a reward.
        return turn.paper_label != "spurious_tool_call"
    return turn.verdict.passed
