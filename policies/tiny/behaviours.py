"""What the tiny base does right, how often, and under which cue: the table that its demonstrations follow.

Each behaviour is one decision that some turns need. On the plain interface it is right at the rate `plain`; where the
solver is shown a matching guideline, at the rate `guided`. Behaviours of 15 to 35 % can be found by GRPO on its own;
those of 1 to 3 % cannot, and need an interface that makes them likely first.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
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

RARE_BEHAVIOURS = (Behaviour.ABSTAIN, Behaviour.RECOVER)
"""Behaviours that `tiny-rare`, and models like it, never show without a cue for them."""

RASH = 0.4
"""Share of the requests with a precondition (a login, locked doors) that are tried without it first, and fail."""

HARMFUL_RATE = 0.01
"""How often the solver abstains or asks where a guideline tells it to call a tool in any case."""

_WORDINGS = tomllib.loads((Path(__file__).parent / "guidelines.toml").read_text(encoding="utf-8"))

GUIDELINES: Mapping[Behaviour, tuple[str, ...]] = MappingProxyType(
    {Behaviour(name): tuple(wordings) for name, wordings in _WORDINGS["behaviours"].items()}
)
"""Behaviour → wordings of the guideline for it."""
BOTH_ABSTENTIONS: tuple[str, ...] = tuple(_WORDINGS["both_abstentions"])
"""Guidelines for abstaining and asking at once."""
HARMFUL: tuple[str, ...] = tuple(_WORDINGS["harmful"])
"""Guidelines that make abstaining and asking rarer."""
IDLE: tuple[str, ...] = tuple(_WORDINGS["idle"])
"""Guidelines that change nothing here."""
