"""`WrittenTaskPool`: the written tasks, with their provenance and present difficulty."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from hashlib import blake2b
from typing import Any

from scipy.special import betaincinv  # type: ignore[import-untyped]

from envs.specifications import Specification, Writable
from envs.task import JSON, Task

LEVEL = 0.9
"""The probability that an interval contains the success rate."""


@dataclass(frozen=True, slots=True)
class TaskDifficulty:
    """p̂ and its interval, from 0 to 1; p̂ is None without rollouts."""

    p: float | None
    low: float
    high: float


def difficulty(successes: float, rollouts: float) -> TaskDifficulty:
    """p̂ and Jeffreys' interval, from numbers of successes and rollouts, which discounts can make fractions.

    The interval is the middle `LEVEL` of Beta(successes + ½, failures + ½), extended to 0 without successes and to 1
    without failures (Brown, Cai and DasGupta, "Interval Estimation for a Binomial Proportion", 2001). With weighted
    rollouts it is conservative. Raises `ValueError` for more successes than rollouts.
    """
    if not 0 <= successes <= rollouts + 1e-9:
        raise ValueError(f"{successes} successes in {rollouts} rollouts")
    if rollouts <= 0:
        return TaskDifficulty(None, 0.0, 1.0)
    failures, tail = max(0.0, rollouts - successes), (1 - LEVEL) / 2
    low = 0.0 if successes <= 0 else float(betaincinv(successes + 0.5, failures + 0.5, tail))
    high = 1.0 if failures <= 0 else float(betaincinv(successes + 0.5, failures + 0.5, 1 - tail))
    return TaskDifficulty(min(1.0, successes / rollouts), low, high)


CAPACITY = 256
"""Largest number of tasks in the pool."""
FILTERING = 0.1
"""Share of the played tasks that is left out at either end, the easiest and the hardest: GenEnv's `filtering_k`."""
DISCOUNT = 0.9
"""Weight of a rollout in a task's success one window later."""
IN_POOL = "specification: it stands in the pool already."
"""The reason of a rejection, which the task writer reads."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The kind of writer of a task, the digest of its failure profile, and the round, from 1."""

    writer: str
    profile: str
    round: int


@dataclass(slots=True)
class Written:
    """One written task with its `rollouts` on the plain interface; `successes` and `counted` are discounted.

    `story` is from `story_of`. `played` is the last round, from 1, in which it was played on any interface.
    """

    task: str
    specification: Specification
    provenance: Provenance
    story: tuple[str, str]
    successes: float = 0.0
    counted: float = 0.0
    rollouts: int = 0
    played: int | None = None

    @property
    def difficulty(self) -> TaskDifficulty:
        return difficulty(self.successes, self.counted)


class WrittenTaskPool:
    """Written tasks, `CAPACITY` at most, each specification once.

    Counts of rollouts are discounted, since the solver learns. If there are too many tasks, the easiest and hardest are
    retired first, then the oldest. `retired` is their number.
    """

    def __init__(self) -> None:
        self.retired = 0
        self._entries: dict[str, Written] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, task_id: object) -> bool:
        return task_id in self._entries

    @property
    def entries(self) -> tuple[Written, ...]:
        """The tasks, in the order in which they were written."""
        return tuple(self._entries.values())

    def known(self, specification: Specification) -> Written | None:
        """The task of an equal specification, or None."""
        return next((entry for entry in self._entries.values() if entry.specification.key == specification.key), None)

    def add(self, task: Task, specification: Specification, provenance: Provenance) -> str | None:
        """Adds a task. Returns None, or the reason in one sentence if the pool has its specification or story already.

        No task is retired before `trim`, at the window's end.
        """
        if self.known(specification) is not None:
            return IN_POOL
        story = story_of(task)
        if any(entry.story[0] == story[0] or entry.story[1] == story[1] for entry in self._entries.values()):
            return "specification: its task tells the story of another one of the pool."
        self._entries[task.id] = Written(task.id, specification, provenance, story)
        return None

    def observe(self, task_id: str, *, successes: float, rollouts: int, round_number: int) -> None:
        """Adds a task's rollouts of a round on the plain interface, which can be none. Other tasks are ignored."""
        entry = self._entries.get(task_id)
        if entry is not None:
            entry.successes += successes
            entry.counted += rollouts
            entry.rollouts += rollouts
            entry.played = round_number

    def age(self) -> None:
        """Ends a window: discounts rollouts, and trims the pool."""
        for entry in self._entries.values():
            entry.successes *= DISCOUNT
            entry.counted *= DISCOUNT
        self.trim()

    def trim(self) -> None:
        """Retires tasks beyond `CAPACITY`."""
        over = len(self._entries) - CAPACITY
        if over > 0:
            left_out = self.left_out()
            for task in sorted(self._entries, key=lambda task: task not in left_out)[:over]:
                del self._entries[task]
            self.retired += over

    def left_out(self) -> frozenset[str]:
        """The easiest and the hardest played tasks, `FILTERING` at either end; of equally hard ones the oldest."""
        played = [entry for entry in self._entries.values() if entry.counted > 0]
        count = int(FILTERING * len(played))
        easiest = sorted(played, key=lambda entry: -entry.successes / entry.counted)[:count]
        hardest = sorted(played, key=lambda entry: entry.successes / entry.counted)[:count]
        return frozenset(entry.task for entry in (*easiest, *hardest))

    def draw(self, count: int, *, seed: str) -> list[str]:
        """The ids of up to `count` tasks: unplayed ones in order, then others in random order without `left_out`."""
        fresh = [entry.task for entry in self._entries.values() if entry.played is None]
        if len(fresh) >= count:
            return fresh[:count]
        left_out = self.left_out()
        rest = [
            entry.task for entry in self._entries.values() if entry.played is not None and entry.task not in left_out
        ]
        random.Random(f"pool {seed}").shuffle(rest)
        return [*fresh, *rest][:count]

    def metrics(self) -> dict[str, float]:
        """Metrics of the whole pool."""
        entries = self.entries
        rates = [p for entry in entries if (p := entry.difficulty.p) is not None]
        metrics: dict[str, float] = {
            "pool/tasks": len(entries),
            "pool/unplayed": sum(entry.played is None for entry in entries),
            "pool/left_out": len(self.left_out()),
            "pool/retired": self.retired,
        }
        if entries:
            metrics["pool/depth"] = sum(entry.specification.depth for entry in entries) / len(entries)
        if rates:
            metrics["pool/success"] = sum(rates) / len(rates)
            metrics["pool/middle"] = sum(0.25 <= p <= 0.75 for p in rates) / len(rates)
        return metrics

    def rows(self) -> list[dict[str, JSON]]:
        """The tasks as rows for a file, in the order in which they were written."""
        left_out = self.left_out()
        return [
            {
                "task": entry.task,
                "specification": entry.specification.dump(),
                "category": str(entry.specification.category),
                "depth": entry.specification.depth,
                "writer": entry.provenance.writer,
                "profile": entry.provenance.profile,
                "written": entry.provenance.round,
                "played": entry.played,
                "rollouts": entry.rollouts,
                **asdict(entry.difficulty),
                "left_out": entry.task in left_out,
            }
            for entry in self._entries.values()
        ]

    def get_state(self) -> dict[str, JSON]:
        """JSON values for a checkpoint."""
        return {
            "retired": self.retired,
            "entries": [
                {each.name: getattr(entry, each.name) for each in fields(entry)}
                | {"specification": entry.specification.dump(), "story": list(entry.story)}
                | {"provenance": list(astuple(entry.provenance))}
                for entry in self._entries.values()
            ],
        }

    def set_state(self, state: Mapping[str, Any], source: Writable) -> None:
        """The inverse of `get_state`; `source` reads the specifications. An empty state is an empty pool."""
        self.retired = state.get("retired", 0)
        self._entries = {}
        for record in state.get("entries", ()):
            read = {
                "specification": source.read(record["specification"]),
                "provenance": Provenance(*record["provenance"]),
                "story": tuple(record["story"]),
            }
            self._entries[record["task"]] = Written(**{**record, **read})


def story_of(task: Task) -> tuple[str, str]:
    """Digests of a task's user texts and of its ground-truth calls, each in their order."""
    return (
        _digest([turn.user or "" for turn in task.turns]),
        _digest([str(call) for turn in task.turns for call in turn.ground_truth]),
    )


def _digest(texts: Sequence[str]) -> str:
    return blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=8).hexdigest()


def written_slots(share: float, numbers: range) -> list[int]:
    """The numbers of written tasks at this share, spread evenly: n if ⌊(n + 1)·share⌋ > ⌊n·share⌋."""
    return [number for number in numbers if int((number + 1) * share + 1e-9) > int(number * share + 1e-9)]
