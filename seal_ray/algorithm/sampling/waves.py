"""The waves of a round: groups that teach nothing are replaced by new ones (`training.fill: resample`).

And guidance on demand (`curator.show: when_failing`): pairs whose plain members fail get the others in a second wave.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from seal_ray.algorithm.sampling.groups import GroupPlan, PlayedGroup

Play = Callable[[Sequence[GroupPlan]], list[PlayedGroup]]
"""Plays groups, and returns them in their order."""


def play_waves(
    plans: Sequence[GroupPlan],
    *,
    play: Play,
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
        # The plans that were asked for: of a pair on demand, a group can have been played in half.
        equal = [plan for plan, group in zip(plans, waves[-1], strict=True) if is_equal(group)]
        if not equal:
            break
        plans = replace(equal[:room])
        waves.append(play(plans))
    return waves


def play_on_demand(plans: Sequence[GroupPlan], *, play: Play) -> list[PlayedGroup]:
    """Plays pairs as far as they are needed: the members under the arm only where all plain ones fail.

    A pair whose plain members do not all fail has these alone. Where all of them are lost to faults nothing is known,
    and no more are played. What is played follows from the verifier's rewards, never from timing.
    """
    begun = play([plan.parts[0] for plan in plans])
    failing = [
        place
        for place, (plan, group) in enumerate(zip(plans, begun, strict=True))
        if len(plan.parts) > 1 and group.trajectories and not any(each.reward for each in group.trajectories)
    ]
    shown = play([plans[place].parts[1] for place in failing]) if failing else []
    for place, group in zip(failing, shown, strict=True):
        begun[place] = joined(plans[place], begun[place], group)
    return begun


def joined(plan: GroupPlan, *parts: PlayedGroup) -> PlayedGroup:
    """The group of the plan, from its parts as they were played."""
    views = [view for part in parts for view in (part.views or (None,) * len(part.outcomes))]
    return PlayedGroup(plan, tuple(each for part in parts for each in part.outcomes), tuple(views))
