"""Which arm plays which task, where all arms of a window play the same ones (`curator.tasks: common`).

A round's tasks are put in an order in which the categories take turns, and an arm that has n groups plays the first n
of them. So all arms that have as many groups play the same tasks, under the same weights of the solver; the tasks of an
arm with fewer groups are among those of an arm with more; and all of them meet the categories equally often, up to one
group. The order goes on over the window: a category that was shown least comes first. Plain groups beyond those of the
arms play tasks of their own, and so do groups that `training.fill: resample` plays in the place of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from envs.errors import EnvironmentFault, UserError
from envs.task import JSON
from seal_ray.algorithm.sampling.groups import Arm, TaskStream


class ArmAllocator(Protocol):
    """Who says which arms get more groups than others, and which tasks."""

    @property
    def tasks_choose(self) -> bool:
        """Whether some tasks choose their arms."""

    def share_out(self, slots: int, seed: int) -> Sequence[int] | None:
        """How many of `slots` groups each arm plays that is not plain; None where they take turns."""

    def arms_for(self, categories: Sequence[str], seed: int) -> Sequence[int] | None:
        """The number of the arm for each task of these categories; None where tasks do not choose their arms."""


@dataclass
class WindowTally:
    """What was planned in the window so far, with which its next round is balanced."""

    arms: Counter[int] = field(default_factory=Counter)
    """Number of an arm → groups that it has."""
    categories: Counter[str] = field(default_factory=Counter)
    """Category → tasks of it that arms other than the plain one have."""

    def add(self, counts: Mapping[int, int], categories: Sequence[str]) -> None:
        self.arms.update(counts)
        self.categories.update(categories)

    def to_dict(self) -> dict[str, JSON]:
        return {"arms": [[arm, n] for arm, n in self.arms.items()], "categories": dict(self.categories)}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> WindowTally:
        return cls(Counter(dict(state.get("arms", ()))), Counter(state.get("categories", {})))


def take_turns(slots: int, arms: Sequence[int], so_far: Mapping[int, int]) -> list[int]:
    """How many of `slots` groups each arm plays: as equally as can be, over the window too."""
    each, left = divmod(slots, len(arms))
    first = sorted(range(len(arms)), key=lambda place: (so_far.get(arms[place], 0), place))[:left]
    return [each + (place in first) for place in range(len(arms))]


def in_turns(categories: Sequence[str], so_far: Mapping[str, int]) -> list[int]:
    """The places of tasks with these categories, in an order in which the category met least comes next."""
    met = Counter(so_far)
    left = list(range(len(categories)))
    order: list[int] = []
    while left:
        found = min(left, key=lambda place: (met[categories[place]], place))
        met[categories[found]] += 1
        left.remove(found)
        order.append(found)
    return order


def common_tasks(
    arms: Sequence[Arm],
    counts: Sequence[int],
    *,
    draw: Callable[[int], Sequence[str]],
    category: Callable[[str], str],
    tally: WindowTally,
) -> tuple[list[str], list[Arm]]:
    """The task and the arm of each group of a round, `counts` of them for each of `arms`, the plain one first.

    `draw` gives as many tasks as the arm with the most groups plays. The `tally` of the window counts them.
    """
    tasks = draw(max(counts))
    order = in_turns([category(task) for task in tasks], tally.categories)
    shown = order[: max(counts[1:], default=0)]
    tally.add({arm.number: n for arm, n in zip(arms, counts, strict=True)}, [category(tasks[place]) for place in shown])
    pairs = [(tasks[place], arm) for arm, n in zip(arms, counts, strict=True) for place in order[:n]]
    return [task for task, _ in pairs], [arm for _, arm in pairs]


def category_in(stream: TaskStream) -> Callable[[str], str]:
    """The category of a task by its id; that of a broken one is empty."""

    def category(task_id: str) -> str:
        try:
            return str(stream.task(task_id).category)
        except (EnvironmentFault, UserError):
            return ""

    return category
