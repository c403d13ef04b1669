"""`RulesCurator` picks guidelines from the failure profile by the rules of SEAL's released code (arXiv 2605.24426).

The wording of the guidelines is our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from envs.diagnosis import Label
from envs.errors import UserError
from envs.interface import Interface, RecoveryLevel
from envs.interface.value import MAX_GUIDELINES
from envs.profile import FailureProfile
from policies.curator.base import Curator, Proposal
from policies.curator.fixed import STATIC_CUES, GivenInterface

_EVERY_PART = "Before you end the turn, check that every part of the request has been done."

GUIDELINE_FOR: Mapping[Label, str] = MappingProxyType(
    {
        Label.SPURIOUS_TOOL_CALL: (
            "If no listed tool can do what is asked, or a needed value was not given, call nothing and say so."
        ),
        Label.INVALID_TOOL_CALL: "Write each call exactly in the format that is asked for, and name only listed tools.",
        Label.ARGUMENT_MISMATCH: (
            "Give every required argument, use only documented arguments, and keep to their types and allowed values."
        ),
        Label.RECOVERY_FAILURE: "If a call fails, read the error, mend its cause and try again.",
        Label.MISSING_TOOL_CALL: _EVERY_PART,
        Label.STATE_MISMATCH: _EVERY_PART,
        Label.RESPONSE_MISMATCH: (
            "Look up with a listed tool what the user wants to know, and do not answer from memory."
        ),
    }
)
"""Failure label → its guideline. An inherited state has none: the fault lies in an earlier turn."""

RULES_BASE = replace(STATIC_CUES, recovery=RecoveryLevel.CLASS)
"""The interface to which the rules add guidelines by default."""


class RulesSettings(BaseModel):
    """When a label's guideline is active, and how many are shown.

    In the window, a label must have at least `min_count` turns and the share `min_prevalence` (0 to 1) of all failed
    turns, and its rollouts a mean reward below `max_reward` (0 to 1). The guidelines are added to `interface`; None is
    `RULES_BASE`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
    min_count: Annotated[int, Field(ge=1)] = 8
    min_prevalence: Annotated[float, Field(ge=0.0, le=1.0)] = 0.10
    max_reward: Annotated[float, Field(ge=0.0, le=1.0)] = 0.6
    keep: Annotated[int, Field(ge=0, le=MAX_GUIDELINES)] = 3
    interface: GivenInterface = None


class RulesCurator(Curator):
    """Proposes the base interface with the guidelines for the window's failures."""

    kind = "rules"
    Settings = RulesSettings

    def __init__(self, settings: RulesSettings | None = None) -> None:
        """Raises `UserError` if the guidelines of the base leave no room for those of the rules."""
        self.settings = settings or RulesSettings()
        self.base = self.settings.interface or RULES_BASE
        if len(self.base.guidelines) + self.settings.keep > MAX_GUIDELINES:
            raise UserError(
                f"rules.keep: {self.settings.keep} guidelines do not fit beside the {len(self.base.guidelines)} of the "
                f"base interface; an interface shows at most {MAX_GUIDELINES}."
            )

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal, ...]:
        del round_number, seed  # the rules read nothing but the window
        if not n:
            return ()
        if not profile.window.get("all").rollouts:
            # There is no evidence against the interface in force.
            return (Proposal(self.base if incumbent.is_plain else incumbent),)
        chosen = (text for text in select_guidelines(profile, self.settings) if text not in self.base.guidelines)
        return (Proposal(replace(self.base, guidelines=(*self.base.guidelines, *chosen))),)


def select_guidelines(profile: FailureProfile, settings: RulesSettings) -> tuple[str, ...]:
    """The guidelines of the `keep` labels with the most pressure; one that two labels share counts once."""
    texts = dict.fromkeys(GUIDELINE_FOR[label] for label in pressures(profile, settings))
    return tuple(texts)[: settings.keep]


def pressures(profile: FailureProfile, settings: RulesSettings) -> dict[Label, float]:
    """The active labels with their pressure = prevalence · (1 − mean reward), the greatest first."""
    active = {}
    for label in GUIDELINE_FOR:
        tally, prevalence = profile.window.get(f"label/{label}"), profile.prevalence(label)
        frequent = tally.turns >= settings.min_count and prevalence >= settings.min_prevalence
        if frequent and tally.reward_mean < settings.max_reward:
            active[label] = prevalence * (1 - tally.reward_mean)
    # Sorting is stable: equal pressures keep the order of the table.
    return dict(sorted(active.items(), key=lambda item: -item[1]))
