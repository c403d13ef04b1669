"""The dialogues of an evaluation: stored as they end, so that it can go on where it was, and counted.

Counted are success by category with intervals, label shares, and how dialogues ended.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from envs.diagnosis import Label
from envs.errors import UserError
from envs.task import in_order
from policies.trajectory import Trajectory
from seal_ray.report.files import JsonLines


@dataclass(frozen=True, slots=True)
class Record:
    """What the counting needs of a dialogue. `completions` holds, by turn, what the solver said step by step."""

    task: str
    category: str
    seed: int
    reward: float
    end: str
    labels: tuple[str, ...]
    sampled_tokens: int
    prompt_tokens: int
    completions: tuple[tuple[str, ...], ...]

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Record:
        """Reads what `Trajectory.to_dict` wrote."""
        return cls(
            task=row["task"],
            category=row["category"],
            seed=row["seed"],
            reward=row["reward"],
            end=row["end"],
            labels=tuple(turn["label"] for turn in row["turns"]),
            sampled_tokens=sum(row["mask"]),
            prompt_tokens=len(row["mask"]) - sum(row["mask"]),
            completions=tuple(tuple(step["completion"] for step in turn["steps"]) for turn in row["turns"]),
        )


class Records:
    """The file of an evaluation's dialogues. A line that a kill cut short is dropped, and its dialogue played again."""

    def __init__(self, path: Path) -> None:
        self._file = JsonLines(path, ascii=False)

    def load(self) -> list[Record]:
        """The dialogues stored so far. Raises `UserError` where the file holds something else."""
        records = []
        for number, line in enumerate(self._file.lines(), 1):
            try:
                records.append(Record.from_dict(json.loads(line)))
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"evaluation: line {number} of {self._file.path} is no dialogue; give another --out or --fresh."
                ) from error
        return records

    def append(self, trajectory: Trajectory) -> Record:
        """Stores one dialogue."""
        row = trajectory.to_dict()
        self._file.append(row)
        return Record.from_dict(row)


_Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A share with its 95 % interval."""

    share: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{100 * self.low:.1f} to {100 * self.high:.1f}"


def success_interval(records: Sequence[Record]) -> Interval:
    """The success rate with Wilson's interval (Wilson 1927, JASA 22), counted in tasks.

    With several seeds a task is still one observation: dialogues of one task are not independent. This is exact for
    one seed and on the safe side for more.
    """
    if not records:
        return Interval(0.0, 0.0, 1.0)
    n = len({record.task for record in records})
    share = sum(record.reward for record in records) / len(records)
    centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


@dataclass(frozen=True, slots=True)
class Group:
    """The counts of one category, or of all. `labels` counts turns, `ends` dialogues."""

    name: str
    tasks: int
    dialogues: int
    success: Interval
    labels: Counter[str]
    ends: Counter[str]

    @classmethod
    def of(cls, name: str, records: Sequence[Record]) -> Group:
        return cls(
            name,
            len({record.task for record in records}),
            len(records),
            success_interval(records),
            Counter(label for record in records for label in record.labels),
            Counter(record.end for record in records),
        )

    def to_dict(self) -> dict[str, Any]:
        turns = self.labels.total()
        return {
            "tasks": self.tasks,
            "dialogues": self.dialogues,
            "success": self.success.share,
            "interval_95": [self.success.low, self.success.high],
            "label_shares": {label: count / turns for label, count in sorted(self.labels.items())},
            "ends": dict(sorted(self.ends.items())),
        }


def groups(records: Sequence[Record], categories: Sequence[str] = ()) -> list[Group]:
    """A group for each category that occurs, in the order of `categories`, and one for all at the end."""
    occurring = [record.category for record in records]
    found = [
        Group.of(category, [record for record in records if record.category == category])
        for category in in_order([*categories, *occurring])
        if category in occurring
    ]
    return [*found, Group.of("all", records)]


def success_table(counted: Sequence[Group], title: str) -> Table:
    """Success by category."""
    table = Table("category", title=title, title_justify="left")
    for name in ("tasks", "dialogues", "success %", "95 % interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in counted:
        success = f"{100 * group.success.share:.1f}"
        cells = (str(group.tasks), str(group.dialogues), success, str(group.success))
        table.add_row(group.name, *cells, style="bold" if group.name == "all" else "")
    return table


def label_table(counted: Sequence[Group]) -> Table:
    """Label shares by category, in percent of the turns."""
    table = Table("label", title="labels, % of turns", title_justify="left")
    for group in counted:
        table.add_column(group.name, justify="right", no_wrap=True)
    for label in Label:
        if counted[-1].labels[label]:
            cells = (f"{100 * group.labels[label] / group.labels.total():.1f}" for group in counted)
            table.add_row(str(label), *cells)
    return table
