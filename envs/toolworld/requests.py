"""A user's request before it is a turn, and what its calls and values tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.task import ToolCall
from envs.toolworld.documents import SUBSTITUTES
from envs.toolworld.scene import Beat

_UNOWNED_SLOTS = frozenset(
    {
        *("word", "unit", "lines", "shares", "order", "id", "user_id", "tweet", "ticket", "priority"),
        *("door", "fan", "mode", "speed", "part"),
    }
)
"""Slots with values that no split owns: fixed choices, ids, and words out of a text. `Words` draws all others."""


@dataclass(frozen=True, slots=True)
class Request:
    """One user turn before its category is applied: what is said, the beats behind it and, later, what was missing."""

    text: str
    beats: tuple[Beat, ...]
    supplied: str | None = None
    omitted: str | None = None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(call for beat in self.beats for call in beat.calls)


def calls_as_text(beat: Beat) -> str:
    """The beat's calls in one line, to tell it from others."""
    return "; ".join(str(call) for call in beat.calls)


def is_anchored(beat: Beat) -> bool:
    """Whether both the request and its calls hold a value that the split owns."""
    said = owned_values(beat)
    return any(text.lstrip("#@") in said for call in beat.calls for text in values_of(call))


def owned_values(beat: Beat) -> frozenset[str]:
    """What the request says that belongs to the split: the texts of its slots, without the signs of tags and names."""
    return frozenset(text.lstrip("#@") for slot, text in beat.slots.items() if slot not in _UNOWNED_SLOTS)


def values_of(call: ToolCall) -> list[str]:
    """A call's argument values as written, those in lists and dicts included."""
    values = []
    for value in call.arguments.values():
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else (value,)
        values += [str(part) for part in parts]
    return values


def can_be_held_out(requests: Sequence[Request], index: int) -> list[str]:
    """Tools that request `index` needs, and none before it; nothing else that is needed can stand in for them."""
    helpers = {name for said in requests for beat in said.beats for name in beat.helpers}
    needed = {call.name for said in requests for call in said.calls} | helpers
    known = {call.name for said in requests[:index] for call in said.calls} | helpers
    new = dict.fromkeys(call.name for call in requests[index].calls if call.name not in known)
    return [name for name in new if not SUBSTITUTES.get(name, frozenset()) & needed]
