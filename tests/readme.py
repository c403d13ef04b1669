"""The README's examples, for the tests that execute them."""

import re
import shlex
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def commands() -> list[list[str]]:
    """The words of every command in the README, as a shell cuts them."""
    found = []
    for block in re.findall(r"```(?:bash)?\n(.*?)```", TEXT, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                found.append(words)
    return found


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
