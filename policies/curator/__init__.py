"""Curators propose the training-time interface from the solver's failure profile. No Ray.

`base.py` has the interface of a curator and the kinds by name. Without a model: `fixed.py` (one static
interface, or the plain one), `rules.py` (the closed loop of SEAL's released code). `llm.py` is a language model, frozen
or learning; `proposal_text.py` has its prompt and reads its answer.
"""

from policies.curator.base import Curator, Tried

__all__ = ["Curator", "Tried"]
