"""Tools of generated tasks: their compact documents, and which ones a task shows or holds out."""

import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from envs.bfcl.tools import all_tools, tool_names, tools_of
from envs.task import JSON, Parameter, ToolDoc
from envs.toolworld.difficulty import Range
from envs.toolworld.scene import Scene
from envs.toolworld.scenes import COMPANIONS
from envs.toolworld.words import read_table
from envs.toolworld.writing import Request

DESCRIPTIONS: Mapping[str, str] = read_table("tools")["descriptions"]
"""Tool → its description, in eight words at most."""
SUBSTITUTES: Mapping[str, frozenset[str]] = {
    tool: frozenset(others.split()) for tool, others in read_table("tools")["substitutes"].items()
}
"""Tool → tools that could do a part of its work. They are not shown if it is held out, so that it is missed."""


@cache
def compact_tool(name: str) -> ToolDoc:
    """The tool with its compact document; calls are checked against the public parameters."""
    public = all_tools()[name]
    document = {
        "name": name,
        "description": DESCRIPTIONS[name],
        "parameters": {
            "type": "dict",
            "properties": {parameter.name: _schema(parameter) for parameter in public.parameters},
            "required": list(public.required),
        },
    }
    return ToolDoc(name, public.class_name, document, public.parameters)


def _schema(parameter: Parameter) -> dict[str, JSON]:
    schema: dict[str, JSON] = {"type": str(parameter.type)}
    if parameter.items is not None:
        schema["items"] = _schema(parameter.items)
    if parameter.properties:
        schema["properties"] = {inner.name: _schema(inner) for inner in parameter.properties}
    return schema


def compact_signature(tool: ToolDoc) -> str:
    """One line per tool: `mv(source, destination) Move or rename a file.`

    Optional arguments have a question mark; the description of an argument follows its name: `setHeadlights(mode: Type:
    string.) …`. It is made from `tool.document`, so that schema cues appear in it.
    """
    schema = tool.document["parameters"]
    required = set(schema["required"])
    arguments = []
    for name, value in schema["properties"].items():
        text = name if name in required else f"{name}?"
        description = value.get("description", "")
        arguments.append(f"{text}: {description}" if description else text)
    return f"{tool.document['name']}({', '.join(arguments)}) {tool.document['description']}"


def some_tools(
    rng: random.Random, requests: Sequence[Request], classes: Sequence[str], hidden: str | None, distractors: Range
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
    rng: random.Random, requests: Sequence[Request], classes: Sequence[str], hidden: str | None, most: int
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
    kinds: list[type[Scene]] = []
    for kind in others:
        more = _visible(kind, hidden)
        fits = count + more + (hidden is not None) <= shown[1]
        if fits and (count < shown[0] or abs(count + more - wanted) < abs(count - wanted)):
            kinds.append(kind)
            count += more
    if count < shown[0]:  # no simulator fits whole; one is shown in part
        kinds.append(next(kind for kind in others if kind not in kinds))
    return kinds


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
