"""A specification as JSON, read from text of any origin, and as the code in the ids of its tasks."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from envs.dialects.base import too_deep
from envs.errors import UserError
from envs.task import JSON, Category
from envs.text import depth
from envs.toolworld.specification.value import (
    MOST_DISTRACTORS,
    MOST_INTENTS,
    MOST_SCENES,
    MOST_TURNS,
    SCENES,
    STATE_SIZES,
    TaskSpecification,
    Withheld,
    intents_of,
    shown,
)

MOST_CHARACTERS = 2_000
"""Length of a text that is read; the longest specification has 1,000 characters."""
_DEPTH = 3
"""Nesting of brackets: the object, its turns, the intents of one."""
_KEYS = ("category", "scenes", "turns", "distractors", "state", "withheld")
_NEEDED = frozenset({"category", "scenes", "turns"})
_CODE = re.compile(r"([a-z+]+)~([a-z_.+-]+)~d(\d{1,2})~s(\d)(?:~h(\d)(?:\.(\w{1,64}))?)?", re.ASCII)


def read_specification(text: str) -> TaskSpecification:
    """The specification in a JSON text of any origin. Raises `UserError`: one sentence with the reason.

    Size and depth are checked before anything is parsed.
    """
    if len(text) > MOST_CHARACTERS:
        raise UserError(f"specification: it has {len(text)} characters; at most {MOST_CHARACTERS} are read.")
    if too_deep(text, _DEPTH, "[{]}"):  # before a parser recurses
        raise _too_deep()
    try:
        value = json.loads(text, object_pairs_hook=_once, parse_constant=_no_constant)
    except UserError:
        raise
    except (ValueError, RecursionError) as error:
        raise UserError(f"specification: it is no valid JSON ({ascii(str(error))[1:-1]:.80}).") from None
    if depth(value) > _DEPTH:
        raise _too_deep()
    return specification_from_dict(value)


def specification_from_dict(value: JSON) -> TaskSpecification:
    """The specification in a JSON value. Raises `UserError`: one sentence with the reason."""
    fields = _object("specification", value, _KEYS, _NEEDED)
    withheld = fields.get("withheld")
    if withheld is not None:
        inner = _object("withheld", withheld, ("turn", "what"), frozenset({"turn"}))
        withheld = Withheld(inner["turn"], inner.get("what"))
    names = (("distractors", "distractors"), ("state", "state_size"))
    others: dict[str, Any] = {name: fields[key] for key, name in names if key in fields}
    scenes, turns = _list("scenes", fields["scenes"]), _list("turns", fields["turns"])
    named = tuple(_list(f"turns: turn {number}", each) for number, each in enumerate(turns, start=1))
    return TaskSpecification(fields["category"], scenes, named, withheld=withheld, **others)


def schema() -> dict[str, Any]:
    """The JSON schema of a specification, for constrained decoding. It allows some invalid specifications."""
    every = [name for scene in SCENES for name in intents_of(scene)]

    def many(items: dict[str, Any], most: int) -> dict[str, Any]:
        return {"type": "array", "minItems": 1, "maxItems": most, "items": items}

    withheld = {
        "type": "object",
        "properties": {
            "turn": {"type": "integer", "minimum": 0, "maximum": MOST_TURNS - 1},
            "what": {"anyOf": [{"type": "string", "maxLength": 64}, {"type": "null"}]},
        },
        "required": ["turn", "what"],
        "additionalProperties": False,
    }
    low, high = STATE_SIZES
    return {
        "type": "object",
        "properties": {
            "category": {"enum": [str(each) for each in Category]},
            "scenes": many({"enum": list(SCENES)}, MOST_SCENES),
            "turns": many(many({"enum": every}, MOST_INTENTS), MOST_TURNS),
            "distractors": {"type": "integer", "minimum": 0, "maximum": MOST_DISTRACTORS},
            "state": {"type": "integer", "minimum": low, "maximum": high},
            "withheld": {"anyOf": [withheld, {"type": "null"}]},
        },
        "required": list(_KEYS),
        "additionalProperties": False,
    }


def code_of(specification: TaskSpecification) -> str:
    """The specification, without its category, in letters that ids may have: `files~files.show-files.copy~d2~s3`."""
    withheld = specification.withheld
    parts = [
        "+".join(specification.scenes),
        "-".join("+".join(intents) for intents in specification.turns),
        f"d{specification.distractors}",
        f"s{specification.state_size}",
    ]
    if withheld is not None:
        parts.append(f"h{withheld.turn}" + ("" if withheld.what is None else f".{withheld.what}"))
    return "~".join(parts)


def specification_of(category: Category, code: str) -> TaskSpecification:
    """The specification of a code. Raises `UserError` for any other text."""
    match = _CODE.fullmatch(code) if len(code) <= MOST_CHARACTERS else None
    if match is None:
        raise UserError(f"specification: {code!r:.80} cannot be read; the form is files~files.show-files.copy~d2~s3.")
    scenes, turns, distractors, state, turn, what = match.groups()
    return TaskSpecification(
        category,
        tuple(scenes.split("+")),
        tuple(tuple(intents.split("+")) for intents in turns.split("-")),
        distractors=int(distractors),
        state_size=int(state),
        withheld=None if turn is None else Withheld(int(turn), what),
    )


def _too_deep() -> UserError:
    return UserError(f"specification: it is nested too deeply; there are {_DEPTH} levels of brackets.")


def _once(pairs: Iterable[tuple[str, JSON]]) -> dict[str, JSON]:
    members: dict[str, JSON] = {}
    for key, value in pairs:
        if key in members:
            raise UserError(f"specification: key '{shown(key)}' stands in it twice.")
        members[key] = value
    return members


def _no_constant(name: str) -> JSON:
    raise UserError(f"specification: {name} is no number of JSON.")


def _object(name: str, value: JSON, keys: tuple[str, ...], needed: frozenset[str]) -> Mapping[str, JSON]:
    if not isinstance(value, dict):
        raise UserError(f"{name}: a {type(value).__name__} does not fit; it must be a JSON object.")
    for key in value:
        if key not in keys:
            raise UserError(f"{name}: key '{shown(key)}' is not known; allowed are {', '.join(keys)}.")
    for key in keys:
        if key in needed and key not in value:
            raise UserError(f"{name}: key {key!r} is missing.")
    return value


def _list(name: str, value: JSON) -> tuple[JSON, ...]:
    if not isinstance(value, list):
        raise UserError(f"{name}: a {type(value).__name__} does not fit; it must be a list.")
    return tuple(value)
