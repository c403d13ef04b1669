"""The history of a run's arms as table and picture: gains, rounds, and promotions.

A model has written the texts of interfaces: control characters in them must not reach a terminal.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from matplotlib.axes import Axes
from pydantic import BaseModel, ConfigDict, Field
from rich.table import Column, Table
from rich.text import Text

from envs.text import visible
from seal_ray.config.schema import Share
from seal_ray.report.files import read_windows
from seal_ray.report.pictures import BLACK, COLOURS, GREY

_INTERVAL = 1.96
"""Standard errors on either side of a gain in an interval of 95 %."""
_NAMED = 8
"""Number of arms with their name in the picture."""
_DRAWN = 200
"""Largest number of arms in the picture, the newest."""
_MAX_GAIN = 1e6


class _Cue(BaseModel):
    kind: str
    tools: list[str]


class ArmWindow(BaseModel):
    """An arm in one window, which has a last round and a number of rounds, with statistics after it."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    id: str = Field(max_length=64)
    schema_cues: list[_Cue]
    recovery: str
    guidelines: list[str]
    groups: int
    rollouts: int
    success: Share | None
    gain: Annotated[float, Field(ge=-_MAX_GAIN, le=_MAX_GAIN)] | None
    error: Annotated[float, Field(ge=0, le=_MAX_GAIN)] | None
    incumbent: bool
    promoted: bool
    round: int = 0
    rounds: int = 0

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of a measured gain."""
        assert self.gain is not None
        half = _INTERVAL * (self.error or 0.0)
        return self.gain - half, self.gain + half

    @property
    def shows(self) -> str:
        """The changes to the plain interface, in one line that is safe in a terminal."""
        parts = [f"{cue.kind} on {', '.join(cue.tools) or 'every tool'}" for cue in self.schema_cues]
        if self.recovery != "none":
            parts.append(f"recovery: {self.recovery}")
        parts += [f"“{text}”" for text in self.guidelines]
        return visible("; ".join(parts) or "nothing")


class _Window(BaseModel):
    model_config = ConfigDict(extra="ignore")
    round: int
    rounds: int
    arms: list[ArmWindow]


@dataclass(frozen=True, slots=True)
class History:
    """An arm with its windows in their order."""

    id: str
    windows: tuple[ArmWindow, ...]

    @property
    def shows(self) -> str:
        """The changes to the plain interface, in one line that is safe in a terminal."""
        return self.windows[0].shows

    @property
    def last(self) -> ArmWindow:
        return self.windows[-1]

    @property
    def groups(self) -> int:
        return sum(window.groups for window in self.windows)

    @property
    def rollouts(self) -> int:
        return sum(window.rollouts for window in self.windows)

    @property
    def promoted_at(self) -> tuple[int, ...]:
        """The rounds after which it became the incumbent."""
        return tuple(window.round for window in self.windows if window.promoted)


def histories(path: Path) -> list[History]:
    """The arms of a run, in the order of their first window. Raises `UserError` for a folder without any."""
    windows: dict[str, list[ArmWindow]] = {}
    for window in read_windows(path, "arms.jsonl", _Window, "curator"):
        for arm in window.arms:
            placed = arm.model_copy(update={"round": window.round, "rounds": window.rounds})
            windows.setdefault(visible(arm.id), []).append(placed)
    return [History(name, tuple(own)) for name, own in windows.items()]


def history_table(arms: Sequence[History]) -> Table:
    """A row for every arm, without its text. The gain is the one after its last window, with a 95 % interval."""
    numeric = (Column(name, no_wrap=True, justify="right") for name in ("groups", "rollouts", "gain"))
    table = Table(Column("arm", no_wrap=True), "rounds", *numeric, "promoted")
    now = incumbent_of(arms)
    for arm in arms:
        promoted = ", ".join(map(str, arm.promoted_at)) or "–"
        in_force = ", in force" if now is not None and arm.id == now.id else ""
        numbers = (_rounds(arm), str(arm.groups), str(arm.rollouts), _gain(arm.last))
        table.add_row(Text(arm.id), *numbers, promoted + in_force)
    return table


def incumbent_of(arms: Sequence[History]) -> History | None:
    """The arm in force after the last window."""
    end = max((arm.last.round for arm in arms), default=0)
    ends = [arm for arm in arms if arm.last.round == end]
    promoted = [arm for arm in ends if arm.last.promoted]
    return next(iter([*promoted, *(arm for arm in ends if arm.last.incumbent)]), None)


def draw_gains(axes: Axes, arms: Sequence[History]) -> None:
    """Draws the gains with their intervals over rounds.

    Lines join an arm's windows; a filled mark is a promotion. Promoted arms, and the best others, are named.
    """
    played = [arm for arm in arms if any(window.gain is not None for window in arm.windows) and arm.id != "plain"]
    played = played[-_DRAWN:]
    named = sorted(played, key=lambda arm: (not arm.promoted_at, -(arm.last.gain or 0.0)))[:_NAMED]
    for place, arm in enumerate(played):
        shift = 0.3 * (place / max(1, len(played) - 1) - 0.5)  # so that intervals of one round do not hide each other
        windows = [window for window in arm.windows if window.gain is not None]
        is_named = arm in named
        colour = COLOURS[named.index(arm)] if is_named else GREY
        axes.errorbar(
            [window.round + shift for window in windows],
            [window.gain or 0.0 for window in windows],
            yerr=[_INTERVAL * (window.error or 0.0) for window in windows],
            color=colour,
            marker="o",
            markerfacecolor="white",
            linewidth=1.5 if is_named else 0.8,
            capsize=3,
            alpha=1.0 if is_named else 0.6,
            label=arm.id if is_named else None,
        )
        promoted = [(window.round + shift, window.gain or 0.0) for window in windows if window.promoted]
        if promoted:
            axes.plot(*zip(*promoted, strict=True), "o", color=colour, markersize=9)
    axes.axhline(0.0, color=BLACK, linewidth=1.0)
    axes.set_xlabel("round (a filled mark: promoted after it)")
    axes.set_ylabel("gain, 95 % interval")


def history_as_rows(arms: Sequence[History]) -> list[dict[str, Any]]:
    """The history as JSON values, a row for every arm."""
    return [
        {
            "id": arm.id,
            "first_round": arm.windows[0].round - arm.windows[0].rounds + 1,
            "last_round": arm.last.round,
            "groups": arm.groups,
            "rollouts": arm.rollouts,
            "gain": arm.last.gain,
            "error": arm.last.error,
            "promoted_after": list(arm.promoted_at),
            "shows": arm.shows,
        }
        for arm in arms
    ]


def _rounds(arm: History) -> str:
    """The rounds of its windows, consecutive ones as one range."""
    ranges: list[list[int]] = []
    for window in arm.windows:
        first = window.round - window.rounds + 1
        if ranges and ranges[-1][1] == first - 1:
            ranges[-1][1] = window.round
        else:
            ranges.append([first, window.round])
    return ", ".join(f"{first}–{last}" if first != last else str(last) for first, last in ranges)


def _gain(window: ArmWindow) -> str:
    if window.gain is None or window.error is None:
        return "–"
    low, high = window.interval
    return f"{window.gain:+.3f} [{low:+.3f}, {high:+.3f}]" if window.error else f"{window.gain:+.3f}"
