"""Which curator a run has."""

from __future__ import annotations

from envs.errors import unknown_value
from envs.interface import Interface
from policies.curator.base import Curator
from policies.curator.fixed import STATIC_CUES, FixedCurator
from policies.curator.none import NoCurator
from policies.curator.rules import RULES_BASE, RulesCurator, RulesSettings

KINDS = ("none", "fixed", "rules", "llm", "coevolved")
"""All kinds; the last two are language models."""
WITHOUT_MODEL = KINDS[:3]
"""Kinds that `make_curator` makes."""


def make_curator(kind: str, *, interface: Interface | None, rules: RulesSettings) -> Curator:
    """A curator of that kind, of those without a model. Raises `UserError` for another one.

    `interface` is what `fixed` shows and what `rules` adds its guidelines to; None stands for the kind's own. Kind
    `none` uses neither argument, so that a run can be repeated without its curator by changing the kind alone.
    """
    match kind:
        case "none":
            return NoCurator()
        case "fixed":
            return FixedCurator(STATIC_CUES if interface is None else interface)
        case "rules":
            return RulesCurator(rules, RULES_BASE if interface is None else interface)
    raise unknown_value("curator", kind, WITHOUT_MODEL)
