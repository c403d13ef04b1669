"""The program side of a `BoundedProcess`: answers one JSON value per line, within limits of its own."""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

from envs.task import JSON

MEMORY = 1 << 30
"""Bytes of address space."""


def take_stdout() -> TextIO:
    """The stream of replies. Whatever the process prints from now on is lost."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return replies


def limit() -> None:
    """Limits memory, and forbids writing to files and core dumps."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def or_error(answer: Callable[[Any], JSON]) -> Callable[[Any], str]:
    """The answer as JSON text, or `{"error": …}` if it raises."""

    def text(request: Any) -> str:
        try:
            return json.dumps(answer(request))
        except Exception as error:  # noqa: BLE001 - the other side decides what any error means
            return json.dumps({"error": str(error)[:1000]})

    return text


def serve(answer: Callable[[Any], str], replies: TextIO, *, seconds: int) -> NoReturn:
    """Answers requests until there are none; `answer` returns JSON text.

    A request that takes more than `seconds` of processor time ends the process.
    """
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        replies.write(answer(json.loads(line)) + "\n")
        replies.flush()
        signal.setitimer(signal.ITIMER_PROF, 0)
    sys.exit(0)
