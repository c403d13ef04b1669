"""The failure profile C: aggregated diagnoses, the only view of the solver that a curator gets.

Counts are kept twice: for the curator's window, and in total.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import astuple, dataclass, field
from typing import Annotated, Self

from pydantic import BaseModel, Field, FiniteFloat, Strict

from envs.diagnosis import Diagnosis, Label
from envs.received import validated
from envs.sources import all_tools
from envs.task import JSON

_UNDOCUMENTED = "(undocumented)"
_SLASH = "%2F"
_Count = Annotated[int, Field(ge=0), Strict()]
_Row = tuple[_Count, _Count, _Count, Annotated[FiniteFloat, Strict()]]


class _Form(BaseModel):
    window: dict[str, _Row]
    total: dict[str, _Row]


@dataclass(slots=True)
class Tally:
    """Counts of one key. `turns` counts turns; the others count rollouts in which the key occurred at least once."""

    turns: int = 0
    rollouts: int = 0
    successes: int = 0
    reward_sum: float = 0.0

    def add(self, turns: int, *, success: bool, reward: float) -> None:
        self.turns += turns
        self.rollouts += 1
        self.successes += success
        self.reward_sum += reward

    @property
    def success_rate(self) -> float:
        """Share of these rollouts that succeeded; 0 if there are none."""
        return self.successes / self.rollouts if self.rollouts else 0.0

    @property
    def reward_mean(self) -> float:
        """Mean reward of these rollouts; 0 if there are none."""
        return self.reward_sum / self.rollouts if self.rollouts else 0.0


@dataclass(slots=True)
class Statistics:
    """Tallies by key; the parts of a key are joined by a slash, and a slash in a part is `%2F`.

    Keys are "all", "label/L", "category/C", "category/C/label/L", "position/P/label/L", "tool/T/label/L",
    "argument/T/A/D" (tool T's argument A, violation kind D) and "flag/F".
    """

    tallies: dict[str, Tally] = field(default_factory=dict)

    def get(self, key: str) -> Tally:
        """The tally of a key, empty if it never occurred."""
        return self.tallies.get(key, Tally())

    def add(self, diagnosis: Diagnosis, reward: float) -> None:
        counts = Counter(_keys(diagnosis))
        counts["all"] = counts[f"category/{diagnosis.category}"] = len(diagnosis.turns)
        for key, turns in counts.items():
            self.tallies.setdefault(key, Tally()).add(turns, success=diagnosis.success, reward=reward)


class FailureProfile:
    """The running aggregate C = Agg({Z(τ)}) over rollouts (SEAL section on the closed loop)."""

    def __init__(self) -> None:
        self.window = Statistics()
        self.total = Statistics()

    def add(self, diagnosis: Diagnosis, reward: float) -> None:
        self.window.add(diagnosis, reward)
        self.total.add(diagnosis, reward)

    def start_window(self) -> None:
        """Empties the window; called when the curator's begins."""
        self.window = Statistics()

    def prevalence(self, label: Label) -> float:
        """The label's share of the window's failed turns; 0 if nothing failed."""
        failures = sum(self.window.get(f"label/{other}").turns for other in Label if other.is_failure)
        return self.window.get(f"label/{label}").turns / failures if failures and label.is_failure else 0.0

    def without(self, names: Collection[str]) -> Self:
        """A copy whose window has no argument and no tool of these names, and no tool of which no argument is left."""
        hidden = {name.replace("/", _SLASH) for name in names}
        failed = {key: key.split("/")[1:3] for key in self.window.tallies if key.startswith("argument/")}
        left = {key for key, parts in failed.items() if not hidden.intersection(parts)}
        hidden |= {tool for tool, _ in failed.values()} - {failed[key][0] for key in left}
        profile = type(self)()
        profile.total = self.total
        profile.window.tallies = {
            key: tally
            for key, tally in self.window.tallies.items()
            if key in left or not (key in failed or (key.startswith("tool/") and key.split("/")[1] in hidden))
        }
        return profile

    def to_dict(self) -> dict[str, JSON]:
        """The whole state as JSON values."""
        return {
            scope: {key: list(astuple(tally)) for key, tally in sorted(statistics.tallies.items())}
            for scope, statistics in (("window", self.window), ("total", self.total))
        }

    @classmethod
    def from_dict(cls, value: JSON) -> Self:
        """The inverse of `to_dict`. Raises `UserError` for anything else."""
        profile = cls()
        read = validated(_Form, value, "failure profile: not a profile's JSON form")
        profile.window, profile.total = (
            Statistics({key: Tally(*row) for key, row in rows.items()}) for rows in (read.window, read.total)
        )
        return profile

    def render(self, *, most: int = 12) -> str:
        """The window as a curator reads it: labels by count, then tools and arguments, the `most` frequent of each."""
        statistics = self.window
        everything = statistics.get("all")
        lines = [
            f"Rollouts: {everything.rollouts}, turns: {everything.turns}, success: {everything.success_rate:.1%}, "
            f"mean reward: {everything.reward_mean:.3f}"
        ]
        lines += _section(statistics, "By category", "category/", depth=2)
        lines += _section(statistics, "By label", "label/", depth=2)
        lines += _section(statistics, "By turn position", "position/", depth=4, most=most)
        lines += _section(statistics, "Tools in failed turns", "tool/", depth=4, most=most)
        lines += _section(statistics, "Arguments that broke a schema", "argument/", depth=4, most=most)
        return "\n".join(lines)


def turn_position(turn: int, turns: int) -> str:
    """The position of a 0-based turn: "only", "early" (the first), "late" (the last) or "middle"."""
    if turns == 1:
        return "only"
    return "early" if turn == 0 else "late" if turn == turns - 1 else "middle"


def _keys(diagnosis: Diagnosis) -> Iterator[str]:
    for turn in diagnosis.turns:
        yield f"label/{turn.label}"
        yield f"category/{diagnosis.category}/label/{turn.label}"
        yield f"position/{turn_position(turn.turn, len(diagnosis.turns))}/label/{turn.label}"
        if turn.label.is_failure and turn.tool is not None:
            # A called name may be anything a model wrote, and a curator reads this: only documented names pass.
            documents = all_tools().get(turn.tool, ())
            tool = turn.tool.replace("/", _SLASH) if documents else _UNDOCUMENTED
            yield f"tool/{tool}/label/{turn.label}"
            if turn.argument is not None:
                known = any(each.parameter(turn.argument) is not None for each in documents)
                argument = turn.argument.replace("/", _SLASH) if known else _UNDOCUMENTED
                yield f"argument/{tool}/{argument}/{turn.detail}"
        for flag in turn.flags:
            yield f"flag/{flag}"


def _section(statistics: Statistics, title: str, prefix: str, *, depth: int, most: int = 20) -> list[str]:
    rows = [
        (key.removeprefix(prefix).replace("/label/", ": ").replace("/", " ").replace(_SLASH, "/"), tally)
        for key, tally in statistics.tallies.items()
        if key.startswith(prefix) and key.count("/") == depth - 1
    ]
    rows.sort(key=lambda row: (-row[1].turns, row[0]))
    lines = [f"- {name}: {tally.turns} turns, success {tally.success_rate:.1%}" for name, tally in rows[:most]]
    return [f"{title}:", *lines] if lines else []
