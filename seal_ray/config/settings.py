"""`Settings`: the protocol by which code reads a run's settings; `SealConfig` holds them for RLlib."""

from __future__ import annotations

from typing import Any, Protocol

from seal_ray.config.sections import S


class Settings(Protocol):
    """Whatever gives sections of settings as checked values.

    `seed` and the numbers of actors are RLlib's own; `engine_factory` makes the engines in place of their kind, or is
    None.
    """

    seed: Any
    num_learners: int
    num_env_runners: int
    engine_factory: Any

    def section(self, kind: type[S]) -> S:
        """A section. Raises `UserError` for a value that does not fit."""
        ...

    def get_config_for_module(self, module_id: str) -> Any:
        """The settings of one agent's module, as RLlib's learner takes them."""
        ...
