"""The kinds of curators, by the name in `curator.kind`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.errors import UserError
from envs.registry import Registry
from envs.task import JSON
from policies.curator.base import Curator

CURATORS: Registry[type[Curator]] = Registry(
    "curator.kind",
    "seal_ray.curators",
    {
        "none": "policies.curator.fixed:NoCurator",
        "fixed": "policies.curator.fixed:FixedCurator",
        "placebo": "policies.curator.fixed:PlaceboCurator",
        "rules": "policies.curator.rules:RulesCurator",
        "llm": "policies.curator.llm:LLMCurator",
        "coevolved": "policies.curator.llm:CoevolvedCurator",
    },
)
"""The kinds. A class without a model takes its `Settings` from the curator section and `curator.kind_settings`.

A class with `is_model` is a subclass of `LLMCurator` and made like it: it writes through an engine, and its proposals
are tried out. With `learns` its model is trained, with the proposals' values as rewards.
"""


def is_model(kind: str) -> bool:
    """Whether curators of this kind are language models. Raises `UserError` for an unknown kind."""
    return bool(getattr(CURATORS.find(kind), "is_model", False))


def learns(kind: str) -> bool:
    """Whether curators of this kind are language models that learn. Raises `UserError` for an unknown kind."""
    return is_model(kind) and bool(getattr(CURATORS.find(kind), "learns", False))


def shows_given_interface(kind: str) -> bool:
    """Whether curators of this kind take the setting `interface`. Raises `UserError` for an unknown kind."""
    model = getattr(CURATORS.find(kind), "Settings", None)
    return model is not None and "interface" in model.model_fields


def make_curator(kind: str, known: Mapping[str, Any] | None = None, own: Mapping[str, JSON] | None = None) -> Curator:
    """Makes a curator of a kind without a model, with the settings that `Registry.make` finds for it.

    Raises `UserError` for an unknown kind, one that is a model, and settings that do not fit.
    """
    if is_model(kind):
        raise UserError(f"curator.kind: {kind!r:.80} is a language model; it is made with an engine.")
    made: Curator = CURATORS.make(kind, known, own)
    return made
