"""A round's plan: which task each group plays, under which interface, with which seeds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from envs.dialogue import Protocol
from envs.interface import Interface
from policies.trajectory import derive_seed


@dataclass(frozen=True, slots=True)
class GroupPlan:
    """One group: `seeds` has one entry a dialogue, `number` counts a run's groups from 0.

    `arm` is the place of the interface among the round's: 0 is the plain one.
    """

    number: int
    task: str
    arm: int
    interface: Interface
    protocol: Protocol
    seeds: tuple[int, ...]
    temperature: float


def plan_round(
    tasks: Sequence[str],
    interfaces: Sequence[Interface],
    *,
    first_number: int,
    plain_share: float,
    group_size: int,
    protocol: Protocol,
    temperature: float,
    seed: int,
) -> list[GroupPlan]:
    """The groups of one round, one for each of `tasks`.

    `plain_share` of them, rounded and at least one, play the plain interface; the others take `interfaces` in turn.
    Interfaces vary between groups and never within one, so that a group's prompts share a prefix.
    """
    shown = [interface for interface in interfaces if interface != Interface.plain()]
    plain = max(1, round(plain_share * len(tasks))) if shown else len(tasks)
    arms = [0] * plain + [1 + place % len(shown) for place in range(len(tasks) - plain)]
    random.Random(f"arms {seed} {first_number}").shuffle(arms)
    return [
        GroupPlan(
            number=number,
            task=task,
            arm=arm,
            interface=shown[arm - 1] if arm else Interface.plain(),
            protocol=protocol,
            seeds=tuple(derive_seed(seed, "rollout", number, member) for member in range(group_size)),
            temperature=temperature,
        )
        for number, task, arm in zip(range(first_number, first_number + len(tasks)), tasks, arms, strict=True)
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
