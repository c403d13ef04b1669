"""Metrics of a round's rollouts, by the names of `seal_ray/metrics.py`."""

from collections import Counter
from collections.abc import Sequence

from envs.diagnosis import Label
from policies.plain_view import NoView, PlainView
from policies.trajectory import Trajectory
from seal_ray.metrics import mean
from seal_ray.rollout.types import Group, played_trajectories


def rollout_metrics(groups: Sequence[Group], categories: Sequence[str]) -> dict[str, float]:
    """Mean reward, success by category and kind of arm, shares of labels among all turns, and the number of faults."""
    trajectories = played_trajectories(groups)
    members = [member for group in groups for member in group.played]
    labels = Counter(label for trajectory in trajectories for label in trajectory.diagnosis.labels)
    turns = max(1, labels.total())
    plain_groups = sum(group.plan.plain for group in groups)
    return {
        "solver/success": _success(trajectories),
        "solver/success_plain": _success([member.trajectory for member in members if member.arm.plain]),
        "solver/success_shown": _success([member.trajectory for member in members if not member.arm.plain]),
        "solver/reward": mean(member.reward for member in members),
        "solver/rollouts": len(trajectories),
        "solver/left_out": sum(group.left_out for group in groups),
        "solver/groups": len(groups),
        "solver/groups_shown": len(groups) - plain_groups,
        "solver/tokens_sampled": sampled_tokens(groups),
        "interface/plain_share": plain_groups / len(groups),
        **_view_metrics([member.view for member in members if member.view is not None]),
        **{
            f"solver/success/{category}": _success([each for each in trajectories if each.category == category])
            for category in categories
        },
        **{f"diagnosis/share/{label}": labels[label] / turns for label in Label},
        "diagnosis/faults": sum(len(group.faults) for group in groups),
    }


def sampled_tokens(groups: Sequence[Group]) -> int:
    return sum(trajectory.sampled_tokens for trajectory in played_trajectories(groups))


def _view_metrics(views: Sequence[PlainView | NoView]) -> dict[str, float]:
    if not views:
        return {}
    reasons = Counter(view for view in views if isinstance(view, NoView))
    return {
        "solver/views": len(views) - reasons.total(),
        **{f"solver/views/{reason}": reasons[reason] for reason in NoView},
    }


def _success(trajectories: Sequence[Trajectory]) -> float:
    return mean(trajectory.reward for trajectory in trajectories)
