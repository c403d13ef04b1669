"""The kinds of curators, by the name in `curator.kind`."""

from envs.registry import Registry
from policies.curator.base import Curator

CURATORS: Registry[type[Curator]] = Registry(
    "curator.kind",
    "seal_ray.curators",
    {
        "none": "policies.curator.fixed:NoCurator",
        "fixed": "policies.curator.fixed:FixedCurator",
        "placebo": "policies.curator.fixed:PlaceboCurator",
        "rules": "policies.curator.rules:RulesCurator",
        "rules-static": "policies.curator.rules:StaticRulesCurator",
        "llm": "policies.curator.llm:LLMCurator",
    },
)
"""A class without a model takes its `Settings` from the curator section. One with `is_model` is a subclass of
`LLMCurator` and made like it: it writes through an engine, and its proposals are tried out."""


def is_model(kind: str) -> bool:
    """Whether curators of this kind are language models. Raises `UserError` for an unknown kind."""
    return bool(getattr(CURATORS.find(kind), "is_model", False))
