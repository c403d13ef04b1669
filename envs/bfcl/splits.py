"""Splits of the 800 tasks into train, dev and test.

* `scenario`, the default: divides the 200 scenarios, so that no config, user text or ground truth is on two sides.
  316 / 84 / 400 tasks, equal in category and balanced in simulators.
* `category`: 100 random train and test tasks per category. As large as the published split, and as leaky: a scenario
  is in all four categories, so over 300 of 400 test tasks share config, user text or calls with a train task.
* A file `{"train": [ids], "test": [ids]}`, optionally with "dev". Other keys, such as the published split's `seed`, are
  listed in `Split.ignored`.
"""

import json
import os
import random
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from envs.bfcl.tasks import get_task, load_tasks
from envs.bfcl.world import simulators_of
from envs.errors import UserError
from envs.received import read_json
from envs.sources import PARTS, Overlap, Split, check_disjoint, overlaps_of
from envs.task import JSON, Category, Task

SCENARIOS = 200
_SHARES: Mapping[str, float] = {"train": 79 / SCENARIOS, "dev": 21 / SCENARIOS, "test": 100 / SCENARIOS}


def get_split(name: str = "scenario", *, seed: int = 0) -> Split:
    """The split of that name, or in the file of that name. Raises `UserError` for neither."""
    if name == "scenario":
        return scenario_split(seed)
    if name == "category":
        return category_split(seed)
    if name.endswith(".json") or os.path.isfile(name):  # False if the name is too long for a path
        return load_split(Path(name))
    raise UserError(f"split: {name!r} is not known; allowed are 'scenario', 'category' or a JSON file.")


@cache
def scenario_split(seed: int = 0) -> Split:
    """The scenario-disjoint split. Deterministic in `seed`."""
    rng = random.Random(f"scenario split {seed}")
    by_classes: dict[tuple[str, ...], list[frozenset[str]]] = defaultdict(list)
    for group in _scenario_groups():
        classes = {name for task in load_tasks().values() if task.scenario in group for name in task.classes}
        by_classes[tuple(sorted(classes))].append(group)
    assigned: dict[str, str] = {}
    sizes = dict.fromkeys(PARTS, 0)
    # Groups that are hard to place evenly come first, while there is room: linked ones, then the rarest simulators.
    for names in sorted(by_classes, key=lambda key: (-max(map(len, by_classes[key])), len(by_classes[key]), key)):
        groups = by_classes[names]
        rng.shuffle(groups)
        groups.sort(key=len, reverse=True)
        placed = dict.fromkeys(PARTS, 0)
        total = sum(map(len, groups))
        for group in groups:
            room = [part for part in PARTS if sizes[part] + len(group) <= round(_SHARES[part] * SCENARIOS)]
            part = max(room, key=lambda p: (_SHARES[p] * total - placed[p], _SHARES[p] * SCENARIOS - sizes[p]))
            placed[part] += len(group)
            sizes[part] += len(group)
            assigned |= dict.fromkeys(group, part)
    parts = {part: tuple(t for t in load_tasks().values() if assigned[t.scenario] == part) for part in PARTS}
    return Split("scenario", parts["train"], parts["dev"], parts["test"], leaky=False)


@cache
def category_split(seed: int = 0) -> Split:
    """The leaky split of the published size. Deterministic in `seed`."""
    rng = random.Random(f"category split {seed}")
    train: list[Task] = []
    test: list[Task] = []
    for category in Category:
        tasks = [task for task in load_tasks().values() if task.category is category]
        chosen = set(rng.sample(range(len(tasks)), len(tasks) // 2))
        for index, task in enumerate(tasks):
            (train if index in chosen else test).append(task)
    return Split("category", tuple(train), (), tuple(test), leaky=True)


def load_split(path: Path) -> Split:
    """A split from a file. Raises `UserError` if its form is not the published one or its parts overlap."""
    value = read_json(path, "split")
    if not isinstance(value, dict):
        raise UserError(f'split: {path} must hold an object {{"train": [ids], "test": [ids]}}, not {value!r:.60}.')
    for key in ("train", "test"):
        if key not in value:
            raise UserError(f"split: {path}: key {key!r} is missing; train and test are needed, dev is optional.")
    parts = {part: _tasks_from(value.get(part, []), f"split: {path}: {part}") for part in PARTS}
    check_disjoint(parts["train"], parts["test"], names=(f"{path}: train", "test"))
    check_disjoint(parts["train"], parts["dev"], names=(f"{path}: train", "dev"))
    check_disjoint(parts["dev"], parts["test"], names=(f"{path}: dev", "test"))
    story = {scenario: group for group in _scenario_groups() for scenario in group}
    sides = [{story[task.scenario] for task in tasks} for tasks in parts.values()]
    leaky = any(a & b for i, a in enumerate(sides) for b in sides[i + 1 :])
    ignored = tuple(key for key in value if key not in PARTS)
    return Split(path.name, parts["train"], parts["dev"], parts["test"], leaky=leaky, ignored=ignored)


def _tasks_from(value: JSON, key: str) -> tuple[Task, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UserError(f"{key} must be a list of task ids, not {value!r:.60}.")
    tasks = []
    for item in value:
        try:
            tasks.append(get_task(item))
        except UserError as error:
            raise UserError(f"{key}: {error}") from None
    if len({task.id for task in tasks}) != len(tasks):
        repeated = next(task.id for task in tasks if sum(other is task for other in tasks) > 1)
        raise UserError(f"{key}: {repeated!r} is given twice; give each task once.")
    return tuple(tasks)


@cache
def _scenario_groups() -> tuple[frozenset[str], ...]:
    """The units that a scenario split divides: all scenarios, linked ones merged."""
    group_of = {task.scenario: frozenset([task.scenario]) for task in load_tasks().values()}
    sharing: dict[str, set[str]] = defaultdict(set)
    for task in load_tasks().values():
        for content in story_of(task):
            sharing[content].add(task.scenario)
    for scenarios in sharing.values():
        merged = frozenset().union(*(group_of[scenario] for scenario in scenarios))
        group_of |= dict.fromkeys(merged, merged)
    return tuple(sorted(set(group_of.values()), key=lambda group: sorted(map(int, group))))


def story_of(task: Task) -> tuple[str, str, str]:
    """The contents that two sides of a split may not share: config, user turns, ground-truth calls."""
    calls = [call.to_dict() for turn in task.turns for call in turn.ground_truth]
    users = [turn.user for turn in task.turns if turn.user is not None]
    return (
        "config " + json.dumps(dict(simulators_of(task).initial_config), sort_keys=True),
        "users " + json.dumps(users),
        "calls " + json.dumps(calls, sort_keys=True),
    )


def overlaps(split: Split) -> list[Overlap]:
    group_of = {scenario: group for group in _scenario_groups() for scenario in group}
    return overlaps_of(split, lambda task: group_of[task.scenario], lambda task: story_of(task)[-1])
