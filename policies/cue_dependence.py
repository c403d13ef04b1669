"""Cue dependence: completions that rely on the content of a cue, and would make no sense behind the plain prompt.

Texts are compared as words after `str.casefold`: runs of letters, digits and underscores, and numbers with a point. The
texts are decoded from the token ids that the policy read and wrote, so that every kind of cue is covered. The work is
linear in their length.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class _ReadText:
    """The text read so far; a run of words is looked up in constant time."""

    form: ChatFormat
    spans: list[Sequence[int]] = field(default_factory=list)
    _words: list[list[str]] = field(default_factory=list)
    _runs: dict[int, tuple[set[Run], int]] = field(default_factory=dict)

    def __contains__(self, run: Run) -> bool:
        """Whether one of the spans has these words, one after the other."""
        # Spans are decoded at the first lookup, and runs indexed at the first lookup of their length.
        for span in self.spans[len(self._words) :]:
            self._words.append(_words(self.form.text(span)))
        runs, indexed = self._runs.get(len(run), (set(), 0))
        for words in self._words[indexed:]:
            runs.update(windows(words, len(run)))
        self._runs[len(run)] = (runs, len(self._words))
        return run in runs


class CueDependenceFinder:
    """Compares a dialogue as it was shown with its plain view, completion by completion."""

    def __init__(self, form: ChatFormat) -> None:
        self._form = form
        self._shown = _ReadText(form)
        self._plain = _ReadText(form)
        self._own: set[Run] = set()

    def read(self, shown: Sequence[int], plain: Sequence[int]) -> None:
        """Adds the tokens that were read since the last completion, and the plain view's tokens."""
        self._plain.spans.append(plain)
        if shown != plain:
            self._shown.spans.append(shown)

    def find(self, completion: Sequence[int], calls: Sequence[ToolCall]) -> CueDependence | None:
        """The next completion's dependence on a cue, if any. `calls` are its calls."""
        words = [_words(part) for call in calls for part in _parts(call)]
        parts = {run for each in words for run in windows(each, min(len(each), RUN_OF_WORDS))}
        if self._shown.spans:
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
