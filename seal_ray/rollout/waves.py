"""Dynamic sampling: groups with equal rewards are replaced, wave by wave (`training.dynamic_sampling`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seal_ray.rollout.types import Group, GroupPlan

Play = Callable[[Sequence[GroupPlan]], list[Group]]
"""Plays groups. Returns them in their order."""


def play_waves(
    plans: Sequence[GroupPlan],
    *,
    play: Play,
    is_equal: Callable[[Group], bool],
    replace: Callable[[Sequence[GroupPlan]], list[GroupPlan]],
    max_groups: int,
) -> list[list[Group]]:
    """Plays `plans`, and as the next wave a replacement of each group that `is_equal`, up to `max_groups` in all.

    DAPO's dynamic sampling (arXiv 2503.14476, section 3.2) in waves that are played to their ends, so that timing
    changes nothing. If `max_groups` leaves too little room, groups with the lowest numbers are replaced. Groups that
    faults made too short are not replaced: a broken environment must not make rounds long.
    """
    waves = [play(plans)]
    while room := max_groups - sum(map(len, waves)):
        equal = [group.plan for group in waves[-1] if is_equal(group)]
        if not equal:
            break
        waves.append(play(replace(equal[:room])))
    return waves
