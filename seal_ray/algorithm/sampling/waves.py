"""The waves of a round: groups that teach nothing are replaced by new ones (`training.fill: resample`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seal_ray.algorithm.sampling.groups import GroupPlan, PlayedGroup


def play_waves(
    plans: Sequence[GroupPlan],
    *,
    play: Callable[[Sequence[GroupPlan]], list[PlayedGroup]],
    is_equal: Callable[[PlayedGroup], bool],
    replace: Callable[[Sequence[GroupPlan]], list[GroupPlan]],
    most: int,
) -> list[list[PlayedGroup]]:
    """Plays `plans`, and as the next wave a group for each one that `is_equal`, while at most `most` are played.

    It is DAPO's dynamic sampling (arXiv 2503.14476, section 3.2) in fixed waves: a wave is played to its end, and its
    rewards alone say how large the next one is, so that timing changes nothing. Where `most` leaves room for fewer,
    those of the lowest numbers are replaced. Groups that faults made too short are not: a broken environment must not
    make rounds long. As each wave replaces what the one before it lacked, no more groups teach than were planned.
    """
    waves = [play(plans)]
    while room := most - sum(map(len, waves)):
        equal = [group.plan for group in waves[-1] if is_equal(group)]
        if not equal:
            break
        waves.append(play(replace(equal[:room])))
    return waves
