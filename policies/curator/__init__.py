"""Curators: what proposes the training-time interface from the solver's failure profile. No Ray.

`base.py` says what a curator is, `choice.py` finds its kind by name. Without a model: `none.py` (always plain),
`fixed.py` (one static interface), `rules.py` (the closed loop of SEAL's released code). `llm.py` is a language model,
frozen or learning, that writes proposals, `prompt.py` what it reads, `proposal_text.py` how its answer is read.
"""

from policies.curator.base import Curator, Proposal
from policies.curator.choice import CURATORS, make_curator
from policies.curator.fixed import STATIC_CUES, FixedCurator
from policies.curator.none import NoCurator
from policies.curator.rules import GUIDELINE_FOR, RULES_BASE, RulesCurator, RulesSettings

__all__ = [
    "CURATORS",
    "GUIDELINE_FOR",
    "RULES_BASE",
    "STATIC_CUES",
    "Curator",
    "FixedCurator",
    "NoCurator",
    "Proposal",
    "RulesCurator",
    "RulesSettings",
    "make_curator",
]
