"""Selects the tools that a task shows from the start, and the one that it holds out."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

from envs.bfcl.tools import tool_names, tools_of
from envs.task import ToolDoc
from envs.toolworld.difficulty import Range
from envs.toolworld.documents import SUBSTITUTES, compact_tool
from envs.toolworld.scene import Scene
from envs.toolworld.scenes import COMPANIONS
from envs.toolworld.writing import Request


def some_tools(
    rng: random.Random,
    requests: Sequence[Request],
    classes: Sequence[str],
    hidden: str | None,
    distractors: Range,
) -> tuple[ToolDoc, ...]:
    """Needed tools, helpers and distractors, in random order."""
    needed = _needed(requests)
    barred = set(needed) if hidden is None else set(needed) | SUBSTITUTES.get(hidden, frozenset())
    others = sorted(name for class_name in classes for name in tool_names(class_name) if name not in barred)
    count = min(rng.randint(*distractors), len(others))
    names = [name for name in needed if name != hidden] + rng.sample(others, count)
    rng.shuffle(names)
    return tuple(compact_tool(name) for name in names)


def whole_tools(
    rng: random.Random,
    requests: Sequence[Request],
    classes: Sequence[str],
    hidden: str | None,
    most: int,
) -> tuple[ToolDoc, ...]:
    """All tools of these simulators, one simulator after the other, without some if they are more than `most`.

    A hidden tool counts, since it is shown later. Tools that could replace it are left out.
    """
    needed = _needed(requests)
    order = list(classes)
    rng.shuffle(order)
    names = [tool.name for kind in order for tool in tools_of(kind) if tool.name not in _barred(hidden)]
    spare = [name for name in names if name not in needed]
    surplus = len(names) + (hidden is not None) - most
    dropped = set(rng.sample(spare, min(surplus, len(spare)))) if surplus > 0 else set()
    return tuple(compact_tool(name) for name in names if name not in dropped)


def further_scenes(
    rng: random.Random, chosen: Iterable[type[Scene]], hidden: str | None, shown: Range
) -> list[type[Scene]]:
    """Scenes whose tools are shown in addition, up to a number of tools in the range `shown`."""
    wanted = rng.randint(*shown)
    others = [kind for kind in COMPANIONS if kind not in set(chosen)]
    rng.shuffle(others)
    count = sum(_visible(kind, hidden) for kind in chosen)
    found: list[type[Scene]] = []
    for kind in others:
        more = _visible(kind, hidden)
        fits = count + more + (hidden is not None) <= shown[1]
        if fits and (count < shown[0] or abs(count + more - wanted) < abs(count - wanted)):
            found.append(kind)
            count += more
    if count < shown[0]:  # no simulator fits whole; one is shown in part
        found.append(next(kind for kind in others if kind not in found))
    return found


def _visible(kind: type[Scene], hidden: str | None) -> int:
    return len(tool_names(kind.class_name) - _barred(hidden))


def _barred(hidden: str | None) -> frozenset[str]:
    """Tools that may not be shown from the start because of the tool that is held out."""
    return frozenset() if hidden is None else SUBSTITUTES.get(hidden, frozenset()) | {hidden}


def _needed(requests: Sequence[Request]) -> dict[str, None]:
    """The tools that these requests need or are helped by, in order."""
    beats = [beat for said in requests for beat in said.beats]
    return dict.fromkeys(name for beat in beats for name in (*(call.name for call in beat.calls), *beat.helpers))


def can_be_held_out(requests: Sequence[Request], index: int) -> list[str]:
    """Tools that request `index` is the first to need, and that no other needed tool can replace."""
    helpers = {name for said in requests for beat in said.beats for name in beat.helpers}
    needed = {call.name for said in requests for call in said.calls} | helpers
    known = {call.name for said in requests[:index] for call in said.calls} | helpers
    new = dict.fromkeys(call.name for call in requests[index].calls if call.name not in known)
    return [name for name in new if not SUBSTITUTES.get(name, frozenset()) & needed]
