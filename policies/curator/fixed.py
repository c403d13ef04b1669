"""`NoCurator`, `FixedCurator` and `PlaceboCurator`: one static interface from the start, whatever the solver does."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, InstanceOf

from envs.interface import CueKind, Interface, SchemaCue
from envs.interface.document import load_interface
from envs.profile import FailureProfile
from policies.curator.base import Curator, Proposal

STATIC_CUES = Interface(schema_cues=(SchemaCue(CueKind.ENUM), SchemaCue(CueKind.REQUIRED)))
"""The schema cues that the main recipe of SEAL (arXiv 2605.24426) shows throughout training."""
IDLE = Interface(
    guidelines=(
        "Be brief and polite. Use the simplest call that works.",
        "Think about the order of the calls. Write valid calls only.",
        "Keep to the documented names of arguments. The user speaks English.",
    )
)
"""Guidelines as many and as long as a curator's, which tell the solver nothing that it does not know."""


GivenInterface = Annotated[
    InstanceOf[Interface] | None,
    BeforeValidator(lambda given: load_interface(Path(given)) if isinstance(given, str) else given),
]
"""Type of a setting: an interface, the path of its JSON file, or None for the kind's own."""


class ConstantCurator(Curator):
    """Proposes one interface, whatever the profile."""

    interface: Interface

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal, ...]:
        del profile, incumbent, round_number, seed  # nothing changes the interface
        return (Proposal(self.interface),) if n else ()


class NoCurator(ConstantCurator):
    """Always proposes the plain interface, so that the solver trains on the benchmark as published.

    It has no settings, so that a run can be repeated without its curator by changing the kind alone.
    """

    kind = "none"
    interface = Interface.plain()


class FixedCurator(ConstantCurator):
    """Always proposes the interface that it was given."""

    kind = "fixed"

    class Settings(BaseModel):
        """What is shown."""

        model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
        interface: GivenInterface = None
        """The interface; None is `STATIC_CUES`."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.interface = (settings or self.Settings()).interface or STATIC_CUES


class PlaceboCurator(ConstantCurator):
    """Always proposes `IDLE`: what a run gains under it is the machinery's, and not the guidance's.

    It has no settings.
    """

    kind = "placebo"
    interface = IDLE
