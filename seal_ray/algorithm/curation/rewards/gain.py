"""Gain: an arm's success above that of the plain arm, compared on equal terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seal_ray.grpo.arms import PLAIN, ArmGroup


class GainReward:
    """Arm → its success above that of the plain arm, from -1 to 1; 0 for the plain arm.

    Arms play different tasks, and categories differ far more than arms: success is fitted as category + arm by least
    squares, so that arms are compared within categories. Arms that share no category with the plain arm, nor with one
    that is compared with it, have no value.
    """

    worst = -1.0
    needs_gradients = False

    def __call__(self, groups: Sequence[ArmGroup], alignments: Mapping[int, Sequence[float]]) -> dict[int, float]:
        del alignments
        groups = _comparable(groups)
        if not groups:
            return {}
        categories = sorted({g.category for g in groups})
        others = sorted({g.arm for g in groups} - {PLAIN})
        rows_GX = np.array(
            [[g.category == name for name in categories] + [g.arm == arm for arm in others] for g in groups],
            dtype=float,
        )
        solution_X, *_ = np.linalg.lstsq(rows_GX, np.array([g.success for g in groups]), rcond=None)
        found = dict(zip(others, solution_X[len(categories) :], strict=True))
        return {PLAIN: 0.0, **{arm: min(1.0, max(-1.0, float(value))) for arm, value in found.items()}}


def _comparable(groups: Sequence[ArmGroup]) -> list[ArmGroup]:
    """The groups of the plain arm and of those that are linked to it by categories which both played."""
    arms: set[int] = set()
    linked = {PLAIN}
    while linked != arms:
        arms = linked
        categories = {group.category for group in groups if group.arm in arms}
        linked = arms | {group.arm for group in groups if group.category in categories}
    return [group for group in groups if group.arm in arms]
