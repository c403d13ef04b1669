"""Text handling at the borders: valid Unicode out, and no markup inside content."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from envs.task import JSON

T = TypeVar("T")

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def valid_text(text: str) -> str:
    """The text with every lone surrogate replaced by U+FFFD, and every surrogate pair by its character.

    JSON can encode half of a surrogate pair (`"\\ud83d"`), which no tokenizer, file or socket accepts.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def map_texts(value: JSON, change: Callable[[str], str]) -> JSON:
    """A JSON value with a function applied to every key and text; tuples become lists."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {map_texts(key, change): map_texts(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [map_texts(item, change) for item in value]
    return value


def depth(value: JSON) -> int:
    """Levels of lists and objects in a JSON value, without recursion; tuples count as lists."""
    levels, inside = 0, [value]
    while inside := [each for each in inside if isinstance(each, list | tuple | dict)]:
        levels += 1
        inside = [item for each in inside for item in (each.values() if isinstance(each, dict) else each)]
    return levels


class Marks:
    """Markup such as `<|im_end|>`, and how to break it up. In the sentences `own_words` it stays whole."""

    def __init__(self, texts: Iterable[str], *, own_words: Iterable[str] = ()) -> None:
        self._marks = _any_of(texts)
        self._own_words = _any_of(own_words)

    def stand_in(self, text: str) -> bool:
        """Whether the text contains markup."""
        return self._marks.search(text) is not None

    def broken_up(self, text: str) -> str:
        """The text with a space behind the first character of each mark, which makes it plain text for a model."""
        if not self.stand_in(text):
            return text
        pieces = self._own_words.split(text)
        return "".join(piece if place % 2 else self._break_up(piece) for place, piece in enumerate(pieces))

    def _break_up(self, text: str) -> str:
        text = self._marks.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)
        return self._marks.sub(_REPLACEMENT, text)  # a mark of one character, or with a space


def _any_of(texts: Iterable[str]) -> re.Pattern[str]:
    """A pattern with one group that matches the longest of these texts, or nothing."""
    longest_first = sorted(filter(None, texts), key=lambda text: (-len(text), text))
    return re.compile(f"({'|'.join(map(re.escape, longest_first)) or '(?!)'})")


def leaves(value: JSON, *, keys: bool = False) -> Iterator[JSON]:
    """The parts of a JSON value that are neither lists nor objects, in order; with `keys` also the keys of objects."""
    if isinstance(value, Mapping):
        value = [*chain.from_iterable(value.items())] if keys else [*value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        for inner in value:
            yield from leaves(inner, keys=keys)
    else:
        yield value


def texts_in(value: JSON, *, whole_numbers: bool = False) -> Iterator[str]:
    """Every string of a JSON value, keys included; with `whole_numbers` these too, as text."""
    for leaf in leaves(value, keys=True):
        if isinstance(leaf, str) or (whole_numbers and type(leaf) is int):
            yield str(leaf)


def windows(items: Sequence[T], size: int) -> Iterator[tuple[T, ...]]:
    """All runs of `size` consecutive items."""
    return zip(*(items[start:] for start in range(size)), strict=False)


def visible(text: str) -> str:
    """The text with control characters, direction marks and half surrogate pairs escaped."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
