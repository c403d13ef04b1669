"""Transfer: what training under an arm does for plain rollouts, to first order (`learning/alignment.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seal_ray.grpo.arms import PLAIN, ArmGroup


class TransferReward:
    """Arm → mean over its rounds of the cosine between the solver's policy gradients on it and on the plain arm.

    The plain arm's cosine with itself has no meaning here, so that its value is 0: a proposal must help plain
    rollouts.
    """

    worst = -1.0
    needs_gradients = True

    def __call__(self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]) -> dict[int, float]:
        del groups
        means = {arm: sum(values) / len(values) for arm, values in alignments.items()}
        return {PLAIN: 0.0, **means}
