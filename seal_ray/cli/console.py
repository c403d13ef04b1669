"""What commands print: control characters in the texts of models, files and servers do not reach a terminal."""

from __future__ import annotations

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
    """The text with control characters, marks of direction and half surrogate pairs written out; lines stay."""
    return _UNSAFE.sub(lambda match: visible(match[0]), text)


class SafeConsole(Console):
    """A console that prints texts as `harmless` gives them; colours are its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(harmless(segment.text), segment.style)


class HarmlessRecord(logging.LogRecord):
    """A line of a log, as `harmless` gives it."""

    def getMessage(self) -> str:  # noqa: N802 - its name in logging
        return harmless(super().getMessage())


def make_console(**options: Any) -> Console:
    """The console of a command, without guesses at what numbers, paths and brackets in texts mean."""
    return SafeConsole(**{"highlight": False, "markup": False, **options})


def ask(question: str) -> bool:
    """A yes or no from the terminal."""
    return typer.confirm(harmless(question), default=False, err=True)


def is_interactive() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
