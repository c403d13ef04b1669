"""What a language model writes as a proposal: its JSON schema, and how what it wrote is read. Nothing is trusted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from envs.errors import UserError
from envs.interface import CueKind, Interface, RecoveryLevel
from envs.interface.document import interface_from_json, interface_to_dict
from envs.interface.value import MAX_GUIDELINE_CHARACTERS, MAX_GUIDELINES

_FADE = "fade"
"""The key of an interface that a proposal does not set: it is a setting of the run."""

PROPOSAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "schema_cues": {
            "type": "array",
            "maxItems": 8,
            "items": {
                "type": "object",
                "properties": {
                    "kind": {"enum": [str(kind) for kind in CueKind]},
                    "tools": {"type": "array", "maxItems": 8, "items": {"type": "string", "maxLength": 64}},
                },
                "required": ["kind", "tools"],
                "additionalProperties": False,
            },
        },
        "recovery": {"enum": [str(level) for level in RecoveryLevel]},
        "guidelines": {
            "type": "array",
            "maxItems": MAX_GUIDELINES,
            "items": {"type": "string", "minLength": 1, "maxLength": MAX_GUIDELINE_CHARACTERS},
        },
    },
    "required": ["schema_cues", "recovery", "guidelines"],
    "additionalProperties": False,
}
"""JSON schema of a proposal, for constrained decoding."""


def write_proposal(interface: Interface) -> str:
    """The interface as a proposal has it: JSON in one line."""
    document = {key: value for key, value in interface_to_dict(interface).items() if key != _FADE}
    return json.dumps(document, ensure_ascii=False)


def read_proposal(text: str) -> Interface:
    """The interface that an answer proposes: its outermost JSON object; the text around it is ignored.

    Raises `UserError` where there is no object, or it is not an interface.
    """
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end < begin:
        raise UserError("proposal: there is no JSON object in it.")
    return replace(interface_from_json(text[begin : end + 1], source="proposal"), fade=0.0)
