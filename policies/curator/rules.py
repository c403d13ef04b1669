"""`RulesCurator` picks guidelines from the failure profile by the rules of SEAL's released code (arXiv 2605.24426).

The wording of the guidelines is our own.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from envs.diagnosis import Label
from envs.errors import UserError
from envs.interface import Interface, RecoveryLevel
from envs.interface.value import MAX_GUIDELINES
from envs.profile import FailureProfile
from policies.curator.base import Curator
from policies.curator.fixed import STATIC_CUES, ConstantCurator, InterfaceSettings
from policies.proposer import Proposal

_EVERY_PART = "Make sure that each part of the request is done before the turn ends."

GUIDELINE_FOR: Mapping[Label, str] = MappingProxyType(
    {
        Label.SPURIOUS_TOOL_CALL: (
            "Call nothing and say so when no listed tool fits the request or a needed value was not given."
        ),
        Label.INVALID_TOOL_CALL: "Write each call exactly in the format that is asked for, and name only listed tools.",
        Label.ARGUMENT_MISMATCH: (
            "Give every required argument, use only documented arguments, and keep to their types and allowed values."
        ),
        Label.RECOVERY_FAILURE: "When a call fails, read its error, do what is missing and make the call again.",
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


MIN_COUNT, MIN_PREVALENCE, MAX_REWARD = 8, 0.10, 0.6
"""When a label's guideline is active: turns with it in the window, their share of all failed turns, and the mean reward
of its rollouts (all 0 to 1), below which it must lie."""
MAX_CHOSEN = 3
"""Largest number of guidelines that the rules add."""


class RulesCurator(Curator):
    """Proposes the base interface, by default `RULES_BASE`, with the guidelines for the window's failures."""

    kind = "rules"
    Settings = InterfaceSettings

    def __init__(self, settings: InterfaceSettings | None = None) -> None:
        """Raises `UserError` if the guidelines of the base leave no room for the rules' guidelines."""
        self.base = (settings or InterfaceSettings()).interface or RULES_BASE
        if len(self.base.guidelines) + MAX_CHOSEN > MAX_GUIDELINES:
            raise UserError(
                f"curator.interface: the rules add {MAX_CHOSEN} guidelines to its {len(self.base.guidelines)}; an "
                f"interface has at most {MAX_GUIDELINES}."
            )

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal[Interface], ...]:
        del round_number, seed  # the rules read nothing but the window
        if not n:
            return ()
        if not profile.window.get("all").rollouts:
            # There is no evidence against the interface in force.
            return (Proposal(self.base if incumbent.is_plain else incumbent),)
        texts = dict.fromkeys(GUIDELINE_FOR[label] for label in pressures(profile))  # two labels can share one
        chosen = (text for text in tuple(texts)[:MAX_CHOSEN] if text not in self.base.guidelines)
        return (Proposal(replace(self.base, guidelines=(*self.base.guidelines, *chosen))),)


def pressures(profile: FailureProfile) -> dict[Label, float]:
    """The active labels with their pressure = prevalence · (1 − mean reward), the greatest first."""
    active = {}
    for label in GUIDELINE_FOR:
        tally, prevalence = profile.window.get(f"label/{label}"), profile.prevalence(label)
        frequent = tally.turns >= MIN_COUNT and prevalence >= MIN_PREVALENCE
        if frequent and tally.reward_mean < MAX_REWARD:
            active[label] = prevalence * (1 - tally.reward_mean)
    # Sorting is stable: equal pressures keep the order of the table.
    return dict(sorted(active.items(), key=lambda item: -item[1]))


class StaticRulesCurator(ConstantCurator):
    """The base interface of the rules, without their guidelines: SEAL without the closed loop."""

    kind = "rules-static"
    interface = RULES_BASE
