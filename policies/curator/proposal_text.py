"""A curator's prompt, which has counts and labels but never a task or an answer, and the reader of its answer.

The answer is not trusted.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from envs.dialogue import Message
from envs.interface import CueKind, Interface, RecoveryLevel, interface_diff
from envs.interface.json_form import interface_from_json, interface_to_dict
from envs.interface.value import MAX_GUIDELINE_CHARACTERS, MAX_GUIDELINES
from envs.profile import FailureProfile
from policies.curator.base import Tried
from policies.proposal_sampling import outermost_object

_FADE = "fade"
"""The key of an interface that no proposal sets: it is a setting of the run."""

INSTRUCTIONS = f"""\
You help to train an agent that calls tools in dialogues. You see how often its turns fail and how, never its tasks. \
Answer with one JSON object: the interface that the agent is shown while it trains.
"schema_cues": parts of the tools' documentation to repeat, each with "kind" (required, enum, type or format) and \
"tools" (their names, or [] for all).
"recovery": what follows a failed call: none, class (of the error) or schema (of the tool).
"guidelines": at most {MAX_GUIDELINES} short sentences of general advice; no values, answers, or code.
The agent is tested without the interface, so show what it can learn from."""

_LISTED = 4
"""Number of positions, tools and arguments in the profile."""


def _list_of(items: dict[str, Any], most: int) -> dict[str, Any]:
    return {"type": "array", "maxItems": most, "items": items}


def _object_of(**properties: dict[str, Any]) -> dict[str, Any]:
    keys = {"required": list(properties), "additionalProperties": False}
    return {"type": "object", "properties": properties, **keys}


PROPOSAL_SCHEMA = _object_of(
    schema_cues=_list_of(
        _object_of(
            kind={"enum": [str(kind) for kind in CueKind]}, tools=_list_of({"type": "string", "maxLength": 64}, 8)
        ),
        8,
    ),
    recovery={"enum": [str(level) for level in RecoveryLevel]},
    guidelines=_list_of({"type": "string", "minLength": 1, "maxLength": MAX_GUIDELINE_CHARACTERS}, MAX_GUIDELINES),
)
"""JSON schema of a proposal, for constrained decoding."""


def write_proposal(interface: Interface) -> str:
    """The interface as a proposal: JSON in one line."""
    document = {key: value for key, value in interface_to_dict(interface).items() if key != _FADE}
    return json.dumps(document, ensure_ascii=False)


def read_proposal(text: str) -> Interface:
    """The interface in an answer: its outermost JSON object. Raises `UserError` if that is no interface."""
    return replace(interface_from_json(outermost_object(text, name="proposal"), source="proposal"), fade=0.0)


def messages_for(
    profile: FailureProfile, *, incumbent: Interface, before: Interface, tried: Sequence[Tried] = ()
) -> tuple[Message, ...]:
    """The messages that ask for a proposal: the window's profile, the interface in force, and its last change.

    `tried` are interfaces of earlier windows, the best first; the leak guard passed them before they were shown.
    """
    changed = "\n".join(interface_diff(before, incumbent)) or "nothing"
    total = profile.total.get("all")
    asked = (
        f"{profile.render(most=_LISTED)}\nSuccess since the begin of training: {total.success_rate:.1%}\n"
        f"Interface in force: {write_proposal(incumbent)}\nChanged last: {changed}"
    )
    if tried:
        lines = [f"{each.gain:+.3f} ± {each.error:.3f} {write_proposal(each.interface)}" for each in tried]
        asked += "\nTried, with the gain in success over no interface, the best first:\n" + "\n".join(lines)
    return Message("system", INSTRUCTIONS), Message("user", asked)
