"""Curators: what proposes the training-time interface from the solver's failure profile. No Ray.

`base.py` says what a curator is, `choice.py` finds its kind by name. Without a model: `fixed.py` (one static interface,
or the plain one), `rules.py` (the closed loop of SEAL's released code). `llm.py` is a language model, frozen or
learning, that writes proposals, `proposal_text.py` what it reads and how its answer is read.
"""

from policies.curator.base import Curator, Proposal

__all__ = ["Curator", "Proposal"]
