"""Output of commands: control characters in the texts of models, files and servers do not reach a terminal."""

import logging
import re
import sys
from collections.abc import Iterable
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from envs.text import visible

_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """The text with control characters, direction marks and lone surrogates escaped; line ends stay."""
    return _UNSAFE.sub(lambda match: visible(match[0]), text)


class SafeConsole(Console):
    """A console that escapes texts with `harmless`; its own colours work."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)


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
