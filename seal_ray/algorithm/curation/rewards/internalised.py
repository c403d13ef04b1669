"""Internalised: what training on an arm's views did for the plain interface, measured after the fact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from seal_ray.grpo.arms import PLAIN, ArmGroup


class InternalisedReward:
    """Arm → mean over its rounds of what the round's training did, from -1 to 1.

    A round's number is `change_of`: how far the arm's guided successes came nearer to what the plain interface says.
    Nothing is done for the plain arm by itself, so that its value is 0.
    """

    worst = -1.0
    needs_gradients = False
    needs_internalised = True

    def __call__(self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]) -> dict[int, float]:
        del groups
        means = {arm: sum(values) / len(values) for arm, values in alignments.items() if values and arm != PLAIN}
        return {PLAIN: 0.0, **{arm: min(1.0, max(-1.0, value)) for arm, value in means.items()}}


def change_of(gap_before: float, gap_after: float) -> float:
    """What a round's training on an arm's views did: the gap that it closed.

    A gap is the mean over the arm's guided successes of log π(y | plain) − log π(y | shown), in nats a token, before
    the round's first step and after its last (HiLL, arXiv 2604.00698, pays for a small one).
    """
    return gap_after - gap_before
