"""`NoCurator`: always the plain interface, so that the solver trains on the benchmark as published."""

from __future__ import annotations

from envs.interface import Interface
from policies.curator.fixed import FixedCurator


class NoCurator(FixedCurator):
    """Always proposes the plain interface."""

    kind = "none"

    def __init__(self) -> None:
        super().__init__(Interface.plain())
