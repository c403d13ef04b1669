"""The history of a run's arms: what each was worth, when it played, and whether it was promoted, as table and picture.

What an interface shows was written by a model: in a terminal its control characters must not act.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from rich.table import Table
from rich.text import Text

from envs.errors import UserError
from envs.text import visible
from seal_ray.config.schema import Share
from seal_ray.report.drawing import BLACK, BLUE, DPI, GREY, RED, as_label, save_picture
from seal_ray.report.files import RunFolder

_INTERVAL = 1.96
"""Standard deviations on either side of a gain in an interval of 95 %."""
_NAMED = 8
"""Arms that have their text in the picture."""
_DRAWN = 200
"""The newest arms, at most so many, are in the picture."""
_MAX_GAIN = 1e6


class _Cue(BaseModel):
    kind: str
    tools: list[str]


class _Arm(BaseModel):
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


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore")
    round: int
    rounds: int
    arms: list[_Arm]


@dataclass(frozen=True, slots=True)
class ArmWindow:
    """One window in which an arm was there: its last round, what was played, and what was known of the arm after it."""

    round: int
    rounds: int
    groups: int
    rollouts: int
    success: float | None
    gain: float | None
    error: float | None
    incumbent: bool
    promoted: bool


@dataclass(frozen=True, slots=True)
class History:
    """One arm, what it shows in one line that is safe in a terminal, and its windows in their order."""

    id: str
    shows: str
    windows: tuple[ArmWindow, ...]

    @property
    def last(self) -> ArmWindow:
        return self.windows[-1]

    @property
    def promoted_at(self) -> tuple[int, ...]:
        """The rounds after which it became the incumbent."""
        return tuple(window.round for window in self.windows if window.promoted)


def read_history(path: Path) -> list[History]:
    """The arms of a run, in the order in which they came up. Raises `UserError` for a folder that has none."""
    if not (path / "config.yaml").is_file():
        raise UserError(f"run: {str(path)!r:.200} is no folder of a run; it holds no config.yaml.")
    if not (path / "arms.jsonl").is_file():
        raise UserError(f"run: {str(path)!r:.200} has no arms.jsonl; no window of a curator has ended in it.")
    folder = RunFolder(path)
    found: dict[str, tuple[str, list[ArmWindow]]] = {}
    for number, row in enumerate(folder.arms.rows(), 1):
        try:
            window = _Row.model_validate(row)
        except ValidationError as error:
            place = ".".join(map(str, error.errors(include_url=False)[0]["loc"]))
            raise UserError(f"{folder.arms.path}: line {number} is no window of arms ({place:.80}).") from None
        for arm in window.arms:
            values = arm.model_dump(include=set(ArmWindow.__slots__))
            _, windows = found.setdefault(visible(arm.id), (_shown(arm), []))
            windows.append(ArmWindow(round=window.round, rounds=window.rounds, **values))
    return [History(name, shows, tuple(windows)) for name, (shows, windows) in found.items()]


def history_table(arms: Sequence[History]) -> Table:
    """A row an arm, without its text. The gain is that after its last window, with an interval of 95 %."""
    table = Table()
    table.add_column("arm", no_wrap=True)
    table.add_column("rounds")
    for name in ("groups", "rollouts", "gain"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("promoted")
    now = incumbent_of(arms)
    for arm in arms:
        last = arm.last
        promoted = ", ".join(map(str, arm.promoted_at)) or "–"
        table.add_row(
            Text(arm.id),
            _rounds(arm),
            str(sum(window.groups for window in arm.windows)),
            str(sum(window.rollouts for window in arm.windows)),
            _gain(last),
            f"{promoted}{', in force' if now is not None and arm.id == now.id else ''}",
        )
    return table


def incumbent_of(arms: Sequence[History]) -> History | None:
    """The arm in force after the last window."""
    end = max((arm.last.round for arm in arms), default=0)
    ends = [arm for arm in arms if arm.last.round == end]
    promoted = [arm for arm in ends if arm.last.promoted]
    return next(iter([*promoted, *(arm for arm in ends if arm.last.incumbent)]), None)


def draw_history(arms: Sequence[History], path: Path, *, title: str = "") -> None:
    """Draws the gains with their intervals over rounds as a PNG at `path`, in the place of any drawn before.

    Lines join an arm's windows; a filled mark is a promotion. Those that were promoted, and the best others, are named.
    """
    figure = Figure(figsize=(12.0, 6.0), dpi=DPI, layout="constrained")
    axes = figure.subplots()
    axes.set_title(title or "Arms", parse_math=False)
    played = [arm for arm in arms if any(window.gain is not None for window in arm.windows) and arm.id != "plain"]
    played = played[-_DRAWN:]
    named = sorted(played, key=lambda arm: (not arm.promoted_at, -(arm.last.gain or 0.0)))[:_NAMED]
    colours = (BLUE, RED, "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#332288", "#7A3B5E")
    for place, arm in enumerate(played):
        beside = 0.3 * (place / max(1, len(played) - 1) - 0.5)  # so that intervals of one round do not hide each other
        there = [window for window in arm.windows if window.gain is not None]
        colour = colours[named.index(arm)] if arm in named else GREY
        axes.errorbar(
            [window.round + beside for window in there],
            [window.gain or 0.0 for window in there],
            yerr=[_INTERVAL * (window.error or 0.0) for window in there],
            color=colour,
            marker="o",
            markerfacecolor="white",
            linewidth=1.5 if arm in named else 0.8,
            capsize=3,
            alpha=1.0 if arm in named else 0.6,
            label=_name(arm) if arm in named else None,
        )
        promoted = [window for window in there if window.promoted]
        axes.plot(
            [w.round + beside for w in promoted], [w.gain or 0.0 for w in promoted], "o", color=colour, markersize=9
        )
    axes.axhline(0.0, color=BLACK, linewidth=1.0)
    axes.set_xlabel("round (a filled mark: promoted after it)")
    axes.set_ylabel("gain over the plain interface, 95 % interval")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.grid(visible=True, alpha=0.25)
    if played:
        axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    else:
        axes.text(0.5, 0.5, "nothing measured yet", transform=axes.transAxes, ha="center", color="#666666")
    save_picture(figure, path)


def history_as_rows(arms: Sequence[History]) -> list[dict[str, Any]]:
    """The same as JSON values, a row an arm."""
    return [
        {
            "id": arm.id,
            "first_round": arm.windows[0].round - arm.windows[0].rounds + 1,
            "last_round": arm.last.round,
            "groups": sum(window.groups for window in arm.windows),
            "rollouts": sum(window.rollouts for window in arm.windows),
            "gain": arm.last.gain,
            "error": arm.last.error,
            "promoted_after": list(arm.promoted_at),
            "shows": arm.shows,
        }
        for arm in arms
    ]


def _shown(arm: _Arm) -> str:
    parts = [f"{cue.kind} on {', '.join(cue.tools) or 'every tool'}" for cue in arm.schema_cues]
    if arm.recovery != "none":
        parts.append(f"recovery: {arm.recovery}")
    parts += [f"“{text}”" for text in arm.guidelines]
    return visible("; ".join(parts) or "nothing")


def _rounds(arm: History) -> str:
    """The rounds of its windows, those that follow on each other as one range."""
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
    low, high = window.gain - _INTERVAL * window.error, window.gain + _INTERVAL * window.error
    return f"{window.gain:+.3f} [{low:+.3f}, {high:+.3f}]" if window.error else f"{window.gain:+.3f}"


def _name(arm: History) -> str:
    return as_label(arm.shows if len(arm.shows) <= 60 else f"{arm.shows[:59]}…")
