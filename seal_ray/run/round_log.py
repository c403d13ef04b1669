"""The log of the dialogues that a round or an evaluation played."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from envs.interface import Interface, interface_diff
from envs.sources import interleaved
from policies.plain_view import PlainView
from seal_ray.report.dialogues import TOKENS, dialogue_sample, known_task
from seal_ray.report.inspect_log import SUCCESS, Logged, write_log
from seal_ray.rollout.types import Group, Member
from seal_ray.training.rows import RowWeight


def write_round_log(
    path: Path,
    groups: Sequence[Group],
    *,
    task: str,
    model: str,
    sources: Sequence[str],
    weighted: Mapping[int, RowWeight] | None = None,
    most: int | None = None,
) -> None:
    """Writes the dialogues of these groups, or `most` of them, as a log named `task`.

    Args:
        sources: The task sources of the ground truths and tools.
        weighted: Seed of a rollout → its advantage and weight.
    """
    task_of = cache(lambda task_id: known_task(task_id, sources))

    def logged(group: Group, member: Member) -> Logged:
        row = member.trajectory.to_dict()
        weight = (weighted or {}).get(member.trajectory.seed)
        scores = {} if weight is None else {"advantage": weight.advantage, "weight": weight.weight}
        if not math.isnan(member.reward):  # as in evaluations, which the verifier alone rewards
            scores["reward"] = member.reward
        view = "plain view" if isinstance(member.view, PlainView) else member.view and f"no plain view: {member.view}"
        sample = dialogue_sample(
            row,
            task_of(member.trajectory.task),
            model=model,
            interface=member.arm.interface,
            scores=scores,
            metadata={"group": group.plan.number, "arm": member.arm.id, "view": view},
        )
        return sample, {key: row[key] for key in TOKENS}

    arms = {arm.id: list(interface_diff(Interface.plain(), arm.interface)) for each in groups for arm in each.plan.arms}
    samples = (logged(*pair) for pair in islice(interleaved_members(groups), most))
    write_log(path, samples, task=task, model=model, scorer=SUCCESS, metadata={"arms": arms})


def interleaved_members(groups: Iterable[Group]) -> Iterator[tuple[Group, Member]]:
    """The played members of all groups in turn, and within a group of its arms in turn, the plain interface last."""
    return interleaved(
        interleaved([(group, each) for each in group.played if each.arm.id == arm] for arm in reversed(group.by_arm()))
        for group in groups
    )
