"""Output of commands: control characters in the texts of models, files and servers do not reach a terminal."""

import logging
import re
import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from envs.text import visible

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """The text with control characters, direction marks and lone surrogates escaped; line ends stay."""
    return _UNSAFE.sub(lambda match: visible(match[0]), text)


class SafeConsole(Console):
    """A console that escapes texts with `harmless`; its own colours work. It cuts no cell of a table."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        if isinstance(renderable, Table):
            renderable = _uncut(self, options or self.options, renderable)
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)


def _uncut(console: Console, options: ConsoleOptions, table: Table) -> RenderableType:
    """The table with columns as wide as their longest word, without borders or with rows as lists if it must be.

    Rich would shorten the widest columns, which often have the names.
    """
    columns = [
        [console.render_str(cell) if isinstance(cell, str) else cell for cell in (column.header, *column.cells)]
        for column in table.columns
    ]
    sizes = [[Measurement.get(console, options, cell) for cell in column] for column in columns]
    wide = [max(size.maximum for size in column) for column in sizes]
    least = [
        most if column.no_wrap else max(size.minimum for size in own)
        for column, most, own in zip(table.columns, wide, sizes, strict=True)
    ]
    spare = options.max_width - sum(least) - 3 * len(least) - 1  # padding and borders
    if spare < 0:
        table.box, table.padding, table.pad_edge = None, (0, 1, 0, 0), False
        spare += 2 * len(least) + 2
    if spare < 0:
        head, *rows = (tuple(Text(" ").join(cell.split()) for cell in cells) for cells in zip(*columns, strict=True))
        lines = (
            Text.assemble("  " * bool(place), name, ": ", cell)
            for row in rows
            for place, (name, cell) in enumerate(zip(head, row, strict=True))
        )
        return Group(table.title or "", *lines, table.caption or "")
    missing = sum(wide) - sum(least)
    for column, few, most in zip(table.columns, least, wide, strict=True):
        column.width = few + (most - few) * min(spare, missing) // max(1, missing)
    return table


class HarmlessRecord(logging.LogRecord):
    """A log record whose message `harmless` has escaped."""

    def getMessage(self) -> str:  # noqa: N802 - its name in logging
        return harmless(super().getMessage())


def make_console(**options: Any) -> Console:
    """The console of a command, without markup and without colours for numbers and paths."""
    return SafeConsole(**{"highlight": False, "markup": False, **options})


def print_line(console: Console, text: str) -> None:
    """Prints a line as it is, without wrapping and markup."""
    console.print(text, soft_wrap=True, markup=False)


def ask(question: str) -> bool:
    """A yes or no from the terminal."""
    return typer.confirm(harmless(question), default=False, err=True)


def is_interactive() -> bool:
    """Whether a user can answer questions."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
