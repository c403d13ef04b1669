"""Cue dependence: completions that rely on the content of a cue, and would make no sense behind the plain prompt.

Texts are compared as words after `str.casefold`: runs of letters, digits and underscores, and numbers with a point. The
texts are decoded from the token ids that the policy read and wrote, so that every kind of cue is covered. The work is
linear in their length.
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import chain

from envs.task import ToolCall
from envs.text import leaves, windows
from policies.prompting import ChatFormat

RUN_OF_WORDS = 6
"""Consecutive words that are a quotation."""

_WORD = re.compile(r"\d+\.\d+|\w+")
_LARGEST = 1 << 64
"""Larger whole numbers are in no cue, and Python refuses to write out very long ones."""

Run = tuple[str, ...]


class CueDependence(StrEnum):
    """A part of a completion that comes from a cue alone."""

    QUOTE = "crutch_quote"
    """`RUN_OF_WORDS` consecutive words, in its text or an argument, that were shown before it, but not in the plain
    view."""
    VALUE = "crutch_value"
    """The name of a tool or an argument, a text or a number of fewer words, of which the same holds.

    Names and values of earlier calls count as the policy's own.
    """


class _ReadText:
    """The words read so far; a run of words is looked up in constant time."""

    def __init__(self) -> None:
        self._words: list[list[str]] = []
        self._runs: dict[int, set[Run]] = {}
        """Length → runs, from the first lookup of that length."""

    def add(self, text: str) -> None:
        self._words.append(_words(text))
        for length, runs in self._runs.items():
            runs.update(windows(self._words[-1], length))

    def __contains__(self, run: Run) -> bool:
        """Whether one of the texts has these words, one after the other."""
        if len(run) not in self._runs:
            self._runs[len(run)] = {each for words in self._words for each in windows(words, len(run))}
        return run in self._runs[len(run)]


class CueDependenceFinder:
    """Compares a dialogue as it was shown with its plain view, completion by completion."""

    def __init__(self, form: ChatFormat) -> None:
        self._form = form
        self._shown = _ReadText()
        self._plain = _ReadText()
        self._own: set[Run] = set()

    def read(self, shown: Sequence[int], plain: Sequence[int]) -> None:
        """Adds the tokens that were read since the last completion, and the plain view's tokens."""
        self._plain.add(self._form.text(plain))
        if shown != plain:
            self._shown.add(self._form.text(shown))

    def find(self, completion: Sequence[int], calls: Sequence[ToolCall]) -> CueDependence | None:
        """The next completion's dependence on a cue, if any. `calls` are its calls."""
        words = [_words(part) for call in calls for part in _parts(call)]
        parts = {run for each in words for run in windows(each, min(len(each), RUN_OF_WORDS))}
        said = windows(_words(self._form.text(completion)), RUN_OF_WORDS)
        used = chain(said, parts - self._own)
        lengths = {len(run) for run in used if run in self._shown and run not in self._plain}
        if lengths:
            return CueDependence.QUOTE if max(lengths) == RUN_OF_WORDS else CueDependence.VALUE
        self._own |= parts
        return None


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


def _parts(call: ToolCall) -> Iterator[str]:
    """The tool's name, and the names, texts and numbers of its arguments."""
    yield call.name
    for leaf in leaves(dict(call.arguments), keys=True):
        if isinstance(leaf, str | float) or (type(leaf) is int and abs(leaf) < _LARGEST):
            yield str(leaf)
