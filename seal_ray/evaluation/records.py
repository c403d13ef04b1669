"""One line of JSON for each dialogue, written as it ends, so that an interrupted evaluation goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.errors import UserError
from policies.trajectory import Trajectory


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
        self._path = path

    def load(self) -> list[Record]:
        """The dialogues stored so far. Raises `UserError` where the file holds something else."""
        if not self._path.exists():
            return []
        text = self._path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        if whole != text:
            self._path.write_text(whole, encoding="utf-8")
        return list(self._parsed(whole))

    def append(self, trajectory: Trajectory) -> Record:
        """Stores one dialogue."""
        row = trajectory.to_dict()
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        return Record.from_dict(row)

    def _parsed(self, text: str) -> Iterator[Record]:
        # Not by `splitlines`: a completion may hold other characters that it takes for line ends.
        for number, line in enumerate(text.split("\n")[:-1], 1):
            try:
                yield Record.from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"evaluation: line {number} of {self._path} is no dialogue; give another --out or --fresh."
                ) from error
