"""`NoCurator`: always the plain interface, so that the solver trains on the benchmark as published."""

from __future__ import annotations

from envs.interface import Interface
from policies.curator.fixed import ConstantCurator


class NoCurator(ConstantCurator):
    """Always proposes the plain interface.

    It has no settings, so that a run can be repeated without its curator by changing the kind alone.
    """

    kind = "none"
    interface = Interface.plain()
