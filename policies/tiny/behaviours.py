"""How often the tiny base's demonstrations are right, by behaviour and cue.

A behaviour is one decision that some turns need. It is right at the rate `plain` on the plain interface, and at the
rate `guided` under a matching guideline. GRPO alone can find behaviours of 15 to 35 %; behaviours of 1 to 3 % need an
interface that makes them likely first.
"""

import itertools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType


class Behaviour(StrEnum):
    """A decision that can go right or wrong."""

    ABSTAIN = "abstain"
    """No listed tool can do the task: say so and call nothing. Wrong: call the missing tool."""
    ASK = "ask"
    """A needed value is missing: ask for it. Wrong: make one up."""
    RECOVER = "recover"
    """A call failed: fix the cause and try again. Wrong: give up."""
    SECOND_REQUEST = "second_request"
    """A turn has two requests: do the second too. Wrong: end the turn after the first."""


@dataclass(frozen=True, slots=True)
class Rates:
    """How often a behaviour is right, as shares of the turns that need it.

    `required` and `feedback` are the least rates under the schema cue for required arguments, and under recovery
    feedback; None if that cue changes nothing.
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
"""Behaviours that `tiny-rare` and similar models never show without their cue."""

RASH = 0.4
"""Share of requests with a precondition (a login, locked doors) that are first tried without it, and fail."""

HARMFUL_RATE = 0.01
"""How often the solver abstains or asks although a guideline says to call a tool in any case."""


@dataclass(frozen=True, slots=True)
class Wordings:
    """The guidelines of demonstrations.

    Attributes:
        behaviours: Behaviour → wordings of the guideline for it.
        both_abstentions: Guidelines for abstaining and asking at once.
        harmful: Guidelines that make abstaining and asking rarer.
        idle: Guidelines that change nothing here.
    """

    behaviours: Mapping[Behaviour, tuple[str, ...]]
    both_abstentions: tuple[str, ...]
    harmful: tuple[str, ...]
    idle: tuple[str, ...]

    @property
    def all(self) -> tuple[str, ...]:
        """Every wording."""
        return (*itertools.chain(*self.behaviours.values()), *self.both_abstentions, *self.harmful, *self.idle)


def _read(*parts: str) -> Wordings:
    tables = tomllib.loads((Path(__file__).parent / "guidelines.toml").read_text(encoding="utf-8"))
    chosen = [tables[part] for part in parts]

    def joined(key: str) -> tuple[str, ...]:
        return tuple(text for table in chosen for text in table[key])

    behaviours = {each: tuple(text for table in chosen for text in table["behaviours"][each]) for each in Behaviour}
    return Wordings(MappingProxyType(behaviours), joined("both_abstentions"), joined("harmful"), joined("idle"))


FIRST_WORDINGS = _read("first")
"""In the demonstrations of `tiny`, of both solver and curator."""
SOLVER_WORDINGS = _read("first", "more")
"""In the solver's demonstrations of later models."""
CURATOR_WORDINGS = _read("curator")
"""In the curator's demonstrations of later models; none is among the solver's."""
