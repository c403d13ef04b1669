"""What is measured of a round's groups and rows, by the names of `seal_ray/report/metrics.py`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Sequence

from envs.diagnosis import Label
from envs.errors import SealError
from policies.trajectory import Trajectory
from seal_ray.algorithm.learning.weigh import RoundRows
from seal_ray.algorithm.sampling.groups import PlayedGroup
from seal_ray.grpo.rewards import Reward
from seal_ray.report.metrics import mean

_log = logging.getLogger("seal_ray")


class TooManyFaults(SealError, RuntimeError):
    """More dialogues of a round were lost to faults than `fault_tolerance.max_fault_share` allows."""


def check_faults(groups: Sequence[PlayedGroup], *, most: float) -> None:
    """Logs the dialogues that were lost. Raises `TooManyFaults` where they are a larger share than `most`."""
    faults = [fault for group in groups for fault in group.faults]
    played = sum(len(group.outcomes) for group in groups)
    if len(faults) > most * played:
        kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(f.kind for f in faults).most_common())
        raise TooManyFaults(
            f"rollouts: {len(faults)} of {played} dialogues were lost to faults ({kinds}); "
            f"the first: {faults[0].message}"
        )
    for fault in faults:
        _log.warning("a dialogue of %s was lost: %s: %s", fault.task, fault.kind, fault.message)


def of_rollouts(groups: Sequence[PlayedGroup], reward: Reward, categories: Sequence[str]) -> dict[str, float]:
    """Mean reward, success by category and kind of arm, the labels' shares of all turns, and the number of faults."""
    trajectories = _trajectories(groups)
    labels = Counter(label for each in trajectories for label in each.diagnosis.labels)
    turns = max(1, labels.total())
    return {
        "solver/success": _success(trajectories),
        "solver/success_plain": _success(_trajectories(group for group in groups if group.plan.arm.plain)),
        "solver/success_shown": _success(_trajectories(group for group in groups if not group.plan.arm.plain)),
        "solver/reward": mean(map(reward, trajectories)),
        "solver/rollouts": len(trajectories),
        "solver/groups": len(groups),
        "solver/tokens_sampled": sampled_tokens(groups),
        "interface/plain_share": sum(group.plan.arm.plain for group in groups) / len(groups),
        **{
            f"solver/success/{category}": _success([each for each in trajectories if each.category == category])
            for category in categories
        },
        **{f"diagnosis/share/{label}": labels[label] / turns for label in Label},
        "diagnosis/faults": sum(len(group.faults) for group in groups),
    }


def of_rows(rows: RoundRows) -> dict[str, float]:
    """The groups that the learner was given, those that were left out, and the diagnosis weights."""
    return {
        "solver/groups_kept": rows.groups_kept,
        "solver/groups_dropped_equal": rows.dropped_equal,
        "solver/groups_dropped_short": rows.dropped_short,
        "solver/weight_mean": rows.weight_mean,
        "solver/weight_max": rows.weight_max,
    }


def sampled_tokens(groups: Sequence[PlayedGroup]) -> int:
    return sum(each.sampled_tokens for each in _trajectories(groups))


def _trajectories(groups: Iterable[PlayedGroup]) -> list[Trajectory]:
    return [each for group in groups for each in group.trajectories]


def _success(trajectories: Sequence[Trajectory]) -> float:
    return mean(each.reward for each in trajectories)
