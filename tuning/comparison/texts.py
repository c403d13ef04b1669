"""Estimates, counts and tables as text."""

from __future__ import annotations

from collections.abc import Sequence

from tuning.comparison.measures import SHARE
from tuning.comparison.results import ArmResult
from tuning.statistics import Estimate

_DIGITS = {SHARE: 1, "rounds": 1}
"""Unit → digits after the decimal point, if any."""


def shown(estimate: Estimate | None, *, unit: str = SHARE, sign: bool = False) -> str:
    """An estimate with its interval, shares in percent; "–" if there is none."""
    if estimate is None:
        return "–"
    bounds = None if estimate.low is None or estimate.high is None else (estimate.low, estimate.high)
    return _shown(estimate.mean, bounds, unit, sign)


def shown_given_seeds(difference: Estimate | None) -> str:
    """A difference of shares with its interval over tasks alone; "–" if there is none."""
    return "–" if difference is None else _shown(difference.mean, difference.given_seeds, SHARE, sign=True)


def _shown(mean: float, bounds: tuple[float, float] | None, unit: str, sign: bool) -> str:
    scale, form = 100 if unit == SHARE else 1, f"{'+' if sign else ''}.{_DIGITS.get(unit, 0)}f"
    interval = "n/a" if bounds is None else ", ".join(f"{scale * bound:{form}}" for bound in bounds)
    return f"{scale * mean:{form}} [{interval}]"


def shown_difference(result: ArmResult) -> str:
    """The difference to the baseline, marked if its interval should include tasks and does not."""
    if result.is_baseline:
        return "baseline"
    difference, measure = result.difference, result.measure
    text = shown(difference, unit=measure.unit, sign=True)
    over_seeds = difference is not None and difference.low is not None and measure.by_task and not difference.tasks
    return f"{text} seeds only" if over_seeds else text


def shown_with_difference(result: ArmResult) -> str:
    """A cell with the estimate and, below it, the difference to the baseline."""
    return shown(result.estimate) + ("" if result.difference is None else f"<br>{shown_difference(result)}")


def shown_number(value: float | None) -> str:
    """A whole number; "–" if there is none."""
    return "–" if value is None else f"{value:.0f}"


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table in Markdown."""
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def section(title: str, *blocks: str | Sequence[str]) -> list[str]:
    """The lines of a section: its title, and blocks of one or more lines, all followed by an empty line."""
    lines = [title, ""]
    for block in blocks:
        lines += [*([block] if isinstance(block, str) else block), ""]
    return lines


def cell(text: str) -> str:
    """A text without the characters that end a cell."""
    return text.replace("|", "\\|").replace("\n", " ")
