"""A round's plan: which task each group plays, under which arm, with which seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.dialogue import Protocol
from policies.trajectory import derive_seed
from seal_ray.algorithm.sampling.groups import Arm, GroupPlan


def plan_round(
    tasks: Sequence[str],
    arms: Sequence[Arm],
    *,
    first_number: int,
    plain_share: float,
    group_size: int,
    protocol: Protocol,
    temperature: float,
    seed: int,
) -> list[GroupPlan]:
    """The groups of one round, one for each of `tasks`.

    `plain_share` of them, rounded and at least one, play the first arm, which is the plain one; the others take the
    other arms in turn. Arms vary between groups and never within one, so that a group's prompts share a prefix.
    """
    plain_arm, *shown = arms
    plain = max(1, round(plain_share * len(tasks))) if shown else len(tasks)
    drawn = [plain_arm] * plain + [shown[place % len(shown)] for place in range(len(tasks) - plain)]
    random.Random(f"arms {seed} {first_number}").shuffle(drawn)
    return [
        GroupPlan(
            number=number,
            task=task,
            arm=arm,
            protocol=protocol,
            seeds=tuple(derive_seed(seed, "rollout", number, member) for member in range(group_size)),
            temperature=temperature,
        )
        for number, task, arm in zip(range(first_number, first_number + len(tasks)), tasks, drawn, strict=True)
    ]


def plain_share_at(round_number: int, *, rounds: int, start: float, end: float | None, fade_from: float) -> float:
    """The share of groups on the plain interface in a round, counted from 0: constant, then linear to `end`.

    A fade-out shows whether what the interface unlocked stays without it.
    """
    if end is None:
        return start
    begin = fade_from * rounds
    done = (round_number - begin) / max(1.0, rounds - 1 - begin)
    return start + (end - start) * min(1.0, max(0.0, done))
