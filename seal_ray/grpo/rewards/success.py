"""The success reward: the verifier's verdict, as in the paper's recipe (SEAL, arXiv 2605.24426)."""

from __future__ import annotations

from policies.trajectory import Trajectory


class SuccessReward:
    """1 where the whole dialogue succeeded, else 0."""

    def __call__(self, trajectory: Trajectory) -> float:
        return trajectory.reward
