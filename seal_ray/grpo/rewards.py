"""Rewards of the solver, by `environment.reward`. Evaluation always counts success."""

import math
from collections.abc import Callable

from envs.diagnosis import Diagnosis
from envs.errors import EnvironmentFault, faults_of
from envs.registry import Registry
from envs.verifier import Outcome
from policies.trajectory import Trajectory

Reward = Callable[[Trajectory], float | None]
"""The reward of a finished dialogue, a finite number, or None to leave it out. It is computed once for each rollout."""
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


def find_reward(name: str) -> Reward:
    """The reward of that name, which raises `EnvironmentFault` for anything else than its values.

    The fault names the reward and the task. Raises `UserError` for an unknown name.
    """
    reward: Reward = REWARDS.make(name)

    def checked(trajectory: Trajectory) -> float | None:
        with faults_of(trajectory.task, f"reward {name!r}"):
            value = reward(trajectory)
            number = None if value is None else float(value)
        if number is not None and not math.isfinite(number):
            raise EnvironmentFault(f"{trajectory.task}: its reward {name!r} is {number}, which is no finite number")
        return number

    return checked


def progress_reward(diagnosis: Diagnosis) -> float:
    """The share of a dialogue's turns that passed, 0 to 1; 1 exactly if all did.

    A turn with ground truth, reached or not, has the weight 1 and the verifier's verdict. A turn without any has
    `ABSTENTION_WEIGHT` and passes if nothing was called; at a weight of 1, never calling a tool is a local optimum,
    which SEAL's authors observed (arXiv 2605.24426 and its released code).
    """
    total = passed = 0.0
    for turn in diagnosis.turns:
        if turn.verdict.outcome is Outcome.UNSCORED:
            # The paper's label depends on executed calls alone, so that finer labels never change a reward.
            weight, turn_passed = ABSTENTION_WEIGHT, turn.paper_label != "spurious_tool_call"
        else:
            weight, turn_passed = 1.0, turn.verdict.passed
        total += weight
        passed += weight * turn_passed
    return passed / total if total else float(diagnosis.success)
