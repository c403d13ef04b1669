"""The examples of the README and the pages, for the tests that execute them."""

import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXT = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def blocks(text: str) -> list[tuple[str, str]]:
    """Language and content of each block."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


BLOCKS = blocks(TEXT)


def commands() -> list[list[str]]:
    """The words of every command, as a shell cuts them, without repetition."""
    found = {}
    for content in (content for language, content in BLOCKS if language in ("", "bash")):
        for line in content.replace("\\\n", " ").splitlines():
            with suppress(ValueError):  # a quotation over several lines
                words = shlex.split(line, comments=True)
                found[tuple(words)] = words
    return [words for words in found.values() if words]


def example(*words: str, but: Mapping[str, str] | None = None) -> list[str]:
    """The one command that is or begins with these words, without the program's name.

    Raises an `AssertionError` where there is none or several. `but` says what stands in for words such as NAME.
    """
    fitting = [command for command in commands() if command[: len(words)] == list(words)]
    fitting = [command for command in fitting if command == list(words)] or fitting
    assert len(fitting) == 1, (words, fitting)
    return [_exchanged(word, but or {}) for word in fitting[0][1:]]


def _exchanged(word: str, but: Mapping[str, str]) -> str:
    for stand_in, other in but.items():
        word = word.replace(stand_in, other)
    return word
