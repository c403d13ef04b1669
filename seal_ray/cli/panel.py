"""`Panel`: progress at the bottom of a terminal; lines that are printed meanwhile appear above it."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.control import Control
from rich.live import Live
from rich.text import Text

_WIDTH = 77
"""Largest width. A terminal that gets narrower breaks longer lines, and no program gets their new number."""
_BAR = 20
_MARKS = "▁▂▃▄▅▆▇█"


class Panel:
    """A bar with the time left, and rows of a name and a text below it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state: tuple[str, int, int, Mapping[str, str]] | None = None
        self._began = self._changed = (0.0, 0)
        self._width = 0

    def show(self, stage: str, done: int, total: int, rows: Mapping[str, str]) -> None:
        """Shows this from now on. The time left comes from the items of this stage so far."""
        self._changed = time.monotonic(), done
        if self._state is None or self._state[0] != stage:
            self._began = self._changed
        self._state = stage, done, total, rows

    def clear(self) -> None:
        self._state = None

    def render(self) -> Text:
        width = min(self._console.width - 3, _WIDTH)  # the terminal shows ^C at its end
        if width < self._width:  # the terminal may have broken lines of the panel
            self._console.control(Control.clear(), Control.home())
        self._width = width
        # Wrapped here, since the options of a line that is printed meanwhile would apply to the panel too.
        return Text("\n").join(Text("\n".join(self._lines())).wrap(self._console, width))

    def _lines(self) -> Iterator[str]:
        if self._state is None:
            return
        stage, done, total, rows = self._state
        filled = _BAR * done // max(1, total)
        (began, first), (changed, _) = self._began, self._changed
        pace = ""
        if total > done > first:
            seconds = (changed - began) / (done - first)
            left = max(0.0, (total - done) * seconds - (time.monotonic() - changed))
            pace = f", {60 / max(seconds, 1e-3):,.{int(seconds > 6)}f} a minute, {minutes(left)} left"
        yield f"{'█' * filled}{'░' * (_BAR - filled)} {stage}: {done:,} of {total:,}{pace}"
        for name, text in rows.items():
            yield f"{name:<10} {text}"


@contextmanager
def live_panel(console: Console) -> Iterator[Panel | None]:
    """A panel until the end of the block, which leaves no trace; None without a terminal."""
    if not console.is_interactive:
        yield None
        return
    panel = Panel(console)
    with Live(console=console, get_renderable=panel.render, transient=True, vertical_overflow="crop"):
        try:
            yield panel
        finally:
            panel.clear()


def sparkline(shares: Iterable[float]) -> str:
    """A bar for each share from 0 to 1, a dot for nan."""
    return "".join("·" if math.isnan(share) else _MARKS[min(7, max(0, int(8 * share)))] for share in shares)


def minutes(seconds: float) -> str:
    """A time in minutes, a short one in seconds."""
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
