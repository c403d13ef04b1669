"""`TaskPool`: the tasks that were written, where they come from, and how hard they are for the solver now."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from envs.specifications import Specification, Writable
from envs.task import JSON, Task
from seal_ray.proposing.difficulty import TaskDifficulty, difficulty

CAPACITY = 256
"""Largest number of tasks in the pool."""
FILTERING = 0.1
"""Share of the played tasks that are left out at either end, the easiest and the hardest: GenEnv's `filtering_k`."""
DISCOUNT = 0.9
"""Weight of a rollout in a task's success one window later."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Who wrote a task, from which failure profile (the digest of its text), and in which round."""

    writer: str
    profile: str
    round: int


@dataclass(slots=True)
class Written:
    """One written task. Of `rollouts` on the plain interface `counted` still count, `successes` of them."""

    task: str
    specification: Specification
    provenance: Provenance
    story: tuple[str, str]
    """Digests of its user texts and of its ground-truth calls, in their order."""
    successes: float = 0.0
    counted: float = 0.0
    rollouts: int = 0
    played: int | None = None
    """The round in which it was played last, on whichever interface, counted from 1."""

    @property
    def difficulty(self) -> TaskDifficulty:
        return difficulty(self.successes, self.counted)


class TaskPool:
    """Written tasks, `CAPACITY` at most, each specification once.

    Draws depend only on what was added, observed and aged, and on a seed. Counts of rollouts are discounted, since the
    solver learns. If there are too many tasks, those that the filter leaves out are retired first, then the oldest.
    """

    def __init__(self) -> None:
        self.retired = 0
        """Tasks that are gone."""
        self._entries: dict[str, Written] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._entries

    @property
    def entries(self) -> tuple[Written, ...]:
        """The tasks, in the order in which they were written."""
        return tuple(self._entries.values())

    def get(self, task_id: str) -> Written | None:
        return self._entries.get(task_id)

    def known(self, specification: Specification) -> Written | None:
        """The task of an equal specification, or None."""
        return next((each for each in self._entries.values() if each.specification.key == specification.key), None)

    def add(self, task: Task, specification: Specification, provenance: Provenance) -> str | None:
        """Adds a task. Returns None, or in one sentence why it is not added: what is in the pool is not added again.

        Nothing is retired yet: `trim` does that, so that the tasks of one window are all played.
        """
        if self.known(specification) is not None:
            return "specification: it stands in the pool already."
        story = story_of(task)
        if any(
            mine == theirs for each in self._entries.values() for mine, theirs in zip(each.story, story, strict=True)
        ):
            return "specification: its task tells the story of another one of the pool."
        self._entries[task.id] = Written(task.id, specification, provenance, story)
        return None

    def observe(self, task_id: str, *, successes: float, rollouts: int, round_number: int) -> None:
        """Takes note that a task was played, and of its rollouts on the plain interface, of which there can be none.

        Tasks that are not here are passed over.
        """
        entry = self._entries.get(task_id)
        if entry is not None:
            entry.successes += successes
            entry.counted += rollouts
            entry.rollouts += rollouts
            entry.played = round_number

    def age(self) -> None:
        """The end of a window: rollouts count less, and what is too old or too much goes."""
        for entry in self._entries.values():
            entry.successes *= DISCOUNT
            entry.counted *= DISCOUNT
        self.trim()

    def trim(self) -> None:
        """Retires tasks until there are as many as the pool may hold."""
        over = len(self._entries) - CAPACITY
        if over > 0:
            left_out = self.left_out()
            order = sorted(self._entries, key=lambda task: task not in left_out)  # else the oldest first
            self._retire(order[:over])

    def left_out(self) -> frozenset[str]:
        """The easiest and the hardest of the tasks that were played, `FILTERING` of them at either end.

        Of equally hard ones those written first are left out.
        """
        played = [each for each in self._entries.values() if each.counted > 0]
        count = int(FILTERING * len(played))
        easiest = sorted(played, key=lambda each: -each.successes / each.counted)[:count]
        hardest = sorted(played, key=lambda each: each.successes / each.counted)[:count]
        return frozenset(each.task for each in (*easiest, *hardest))

    def draw(self, count: int, *, seed: str) -> list[str]:
        """The ids of `count` tasks, or of all that there are: those that nobody has played first, in their order.

        The others follow at random by the seed, each once, without what the filter leaves out.
        """
        fresh = [each.task for each in self._entries.values() if each.played is None]
        if len(fresh) >= count:
            return fresh[:count]
        left_out = self.left_out()
        rest = [each.task for each in self._entries.values() if each.played is not None and each.task not in left_out]
        random.Random(f"pool {seed}").shuffle(rest)
        return [*fresh, *rest][:count]

    def metrics(self) -> dict[str, float]:
        """Metrics of the whole pool."""
        entries = self.entries
        known = [each.difficulty.p for each in entries]
        rates = [p for p in known if p is not None]
        found: dict[str, float] = {
            "pool/tasks": len(entries),
            "pool/unplayed": sum(each.played is None for each in entries),
            "pool/left_out": len(self.left_out()),
            "pool/retired": self.retired,
        }
        if entries:
            found["pool/depth"] = sum(each.specification.depth for each in entries) / len(entries)
        if rates:
            found["pool/success"] = sum(rates) / len(rates)
            found["pool/middle"] = sum(0.25 <= p <= 0.75 for p in rates) / len(rates)
        return found

    def rows(self) -> list[dict[str, JSON]]:
        """The tasks for people to read, in the order in which they were written."""
        left_out = self.left_out()
        return [
            {
                "task": each.task,
                "specification": each.specification.dump(),
                "category": str(each.specification.category),
                "depth": each.specification.depth,
                "writer": each.provenance.writer,
                "profile": each.provenance.profile,
                "written": each.provenance.round,
                "played": each.played,
                "rollouts": each.rollouts,
                "p": each.difficulty.p,
                "low": each.difficulty.low,
                "high": each.difficulty.high,
                "left_out": each.task in left_out,
            }
            for each in self._entries.values()
        ]

    def get_state(self) -> dict[str, JSON]:
        """What a checkpoint must keep, as JSON values."""
        return {
            "retired": self.retired,
            "entries": [
                {
                    "task": each.task,
                    "specification": each.specification.dump(),
                    "provenance": [each.provenance.writer, each.provenance.profile, each.provenance.round],
                    "story": list(each.story),
                    "successes": each.successes,
                    "counted": each.counted,
                    "rollouts": each.rollouts,
                    "played": each.played,
                }
                for each in self._entries.values()
            ],
        }

    def set_state(self, state: Mapping[str, Any], source: Writable) -> None:
        """The inverse of `get_state`; `source` reads the specifications again. An empty state is an empty pool."""
        self.retired = state.get("retired", 0)
        self._entries = {}
        for each in state.get("entries", ()):
            self._entries[each["task"]] = Written(
                each["task"],
                source.read(each["specification"]),
                Provenance(*each["provenance"]),
                (each["story"][0], each["story"][1]),
                each["successes"],
                each["counted"],
                each["rollouts"],
                each["played"],
            )

    def _retire(self, tasks: Iterable[str]) -> None:
        for task in tasks:
            del self._entries[task]
            self.retired += 1


def story_of(task: Task) -> tuple[str, str]:
    """Digests of a task's user texts and of its ground-truth calls, each in their order."""
    return (
        _digest([turn.user or "" for turn in task.turns]),
        _digest([str(call) for turn in task.turns for call in turn.ground_truth]),
    )


def _digest(texts: Sequence[str]) -> str:
    return blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def written_slots(share: float, numbers: range) -> list[int]:
    """Which of the tasks with these numbers are written ones, at this share: spread evenly, the same for a number.

    Number n is one where the whole part of (n + 1)·share is greater than that of n·share.
    """
    return [number for number in numbers if int((number + 1) * share + 1e-9) > int(number * share + 1e-9)]
