"""Curators with one static interface: `NoCurator`, `FixedCurator` and `PlaceboCurator`."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, InstanceOf

from envs.interface import CueKind, Interface, SchemaCue
from envs.interface.json_form import load_interface
from envs.profile import FailureProfile
from policies.curator.base import Curator
from policies.proposer import Proposal

STATIC_CUES = Interface(schema_cues=(SchemaCue(CueKind.ENUM), SchemaCue(CueKind.REQUIRED)))
"""The schema cues that the main recipe of SEAL (arXiv 2605.24426) shows throughout training."""
IDLE = Interface(
    guidelines=(
        "Write to the user in friendly words, as a good clerk would do.",
        "Read all names in the documentation with care, one after the other.",
        "The user writes English; small letters and capitals both occur.",
    )
)
"""As many guidelines of the same length as a curator's, without new information for the solver."""

GivenInterface = Annotated[
    InstanceOf[Interface] | None,
    BeforeValidator(lambda given: load_interface(Path(given)) if isinstance(given, str) else given),
]
"""Type of a setting: an interface, the path of its JSON file, or None for the kind's default."""


class ConstantCurator(Curator):
    """Proposes one interface, whatever the profile."""

    interface: Interface

    async def propose(
        self, profile: FailureProfile, *, incumbent: Interface, n: int, round_number: int, seed: int
    ) -> tuple[Proposal[Interface], ...]:
        del profile, incumbent, round_number, seed  # nothing changes the interface
        return (Proposal(self.interface),) if n else ()


class NoCurator(ConstantCurator):
    """Always proposes the plain interface. Without settings, so that changing the kind alone removes a curator."""

    kind = "none"
    interface = Interface.plain()


class InterfaceSettings(BaseModel, extra="forbid", frozen=True, strict=True):
    """The settings of a curator that is given an interface; None is its default."""

    interface: GivenInterface = None


class FixedCurator(ConstantCurator):
    """Always proposes the given interface, by default `STATIC_CUES`."""

    kind = "fixed"
    Settings = InterfaceSettings

    def __init__(self, settings: InterfaceSettings | None = None) -> None:
        self.interface = (settings or InterfaceSettings()).interface or STATIC_CUES


class PlaceboCurator(ConstantCurator):
    """Always proposes `IDLE`: a run's gain under it comes from the machinery, not from the guidance."""

    kind = "placebo"
    interface = IDLE
