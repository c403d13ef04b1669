"""What the tiny base does right, how often, and under which cue: the table that its demonstrations follow.

Each behaviour is one decision that some turns need. On the plain interface it is right at the rate `plain`; where the
solver is shown a matching guideline, at the rate `guided`. Behaviours of 15 to 35 % can be found by GRPO on its own;
those of 1 to 3 % cannot, and need an interface that makes them likely first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Behaviour(StrEnum):
    """A decision that can go right or wrong."""

    ABSTAIN = "abstain"
    """No listed tool can do what is asked: say so and call nothing. Wrong: call the tool that is not there."""
    ASK = "ask"
    """A needed value was not given: ask for it. Wrong: make one up."""
    RECOVER = "recover"
    """A call failed: mend the cause and try again. Wrong: give up."""
    SECOND_REQUEST = "second_request"
    """A turn asks for two things: do the second too. Wrong: end the turn after the first."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a behaviour is right, as shares of the turns that need it.

    `required` and `feedback` are the rates where the schema cue for required arguments is shown, or recovery feedback;
    where they are None, these cues change nothing.
    """

    plain: float
    guided: float
    required: float | None = None
    feedback: float | None = None


RATES: Mapping[Behaviour, Rates] = MappingProxyType(
    {
        Behaviour.ABSTAIN: Rates(plain=0.02, guided=0.95),
        Behaviour.ASK: Rates(plain=0.3, guided=0.95, required=0.7),
        Behaviour.RECOVER: Rates(plain=0.02, guided=0.95, feedback=0.8),
        Behaviour.SECOND_REQUEST: Rates(plain=0.65, guided=0.95),
    }
)

RASH = 0.4
"""Share of the requests with a precondition (a login, locked doors) that are tried without it first, and fail."""

HARMFUL_RATE = 0.01
"""How often the solver abstains or asks where a guideline tells it to call a tool in any case."""

GUIDELINES: Mapping[Behaviour, tuple[str, ...]] = MappingProxyType(
    {
        Behaviour.ABSTAIN: (
            "If no listed tool can do what is asked, call nothing and say so.",
            "When the tool that is needed is not listed, do not call any tool.",
            "Use only listed tools. If none fits, answer without a call.",
            "Check that a listed tool fits the request. If there is none, call nothing.",
        ),
        Behaviour.ASK: (
            "If a needed value was not given, ask for it and call nothing.",
            "Never make up a value. When one is missing, ask the user.",
            "When a required argument is missing from the request, ask before you call.",
            "Do not guess arguments; ask for what is missing.",
        ),
        Behaviour.RECOVER: (
            "If a call fails, read the error, mend its cause and try again.",
            "After an error do not give up: do what is missing and repeat the call.",
            "When a tool returns an error, fix the reason and call it again.",
            "Errors can be mended: log in or prepare what is needed, then retry.",
        ),
        Behaviour.SECOND_REQUEST: (
            "Before you end the turn, check that every part of the request has been done.",
            "A turn can ask for several things; do all of them.",
            "After the first call, see whether something else was asked for and do it too.",
            "Do not stop after the first task of a turn; finish the second as well.",
        ),
    }
)
"""Behaviour → wordings of the guideline for it."""

BOTH_ABSTENTIONS = (
    "If no listed tool can do what is asked, or a needed value was not given, call nothing and say so.",
    "Call nothing when a needed value is missing or no listed tool fits.",
)
"""Guidelines for abstaining and asking at once."""

HARMFUL = (
    "Always call a tool, even if something is missing.",
    "Every turn needs a call; never answer without one.",
    "Call a tool in any case, do not ask questions.",
    "Do not ask the user; make the call at once.",
)
"""Guidelines that make abstaining and asking rarer."""

IDLE = (
    "Be brief and polite.",
    "Use the simplest call that works.",
    "Write valid calls only.",
    "Think about the order of the calls.",
    "Keep to the documented names of arguments.",
    "The user speaks English.",
)
"""Guidelines that change nothing here."""
