"""Recipes: the settings in which trials must agree to be held against each other. No Ray."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envs.errors import UserError
from seal_ray.config import schema
from seal_ray.config.sections import fields_of
from seal_ray.report.files import as_json

Sections = Mapping[str, Any]
"""The settings of a trial, section → setting → value."""

SAME = {
    "environment": tuple(key for key in schema.EnvironmentSection.model_fields if key != "reward"),
    "training": ("rounds", "groups", "group_size", "dynamic_sampling", "fill", "fill_limit"),
    "evaluation": tuple(schema.EvaluationSection.model_fields),
    "solver": ("model",),
}
"""Section → settings that trials must share to be compared, those of earlier versions included."""

PLACE: Mapping[str, tuple[str, ...]] = {
    "engine": tuple(key for key in schema.EngineSection.model_fields if key not in ("kind", "dtype")),
    "env_runners": tuple(schema.EnvRunnersSection.model_fields),
    "learners": tuple(schema.LearnersSection.model_fields),
    "training": ("microbatch_tokens",),
}
"""Section → settings of where and how fast a run computes, on which its results depend by rounding alone."""


def check_arms(arms: Mapping[str, Sections]) -> None:
    """Raises `UserError` where arms differ in what must be equal."""
    first = next(iter(arms), "")
    for arm, settings in arms.items():
        for name, (left, right) in differences(arms[first], settings, places=False):
            section, _, key = name.partition(".")
            if key in SAME.get(section, ()):
                raise UserError(
                    f"{name}: it is {left!r:.80} in the arm {first} and {right!r:.80} in {arm}; arms are compared at "
                    "equal rounds and rollouts, from the same tasks."
                )


def differences(left: Sections, right: Sections, *, places: bool = True) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """(section.key, both values) of each setting that is not the same in both, but for the seed.

    Without `places` those of `PLACE` are left out too. Runs of earlier versions lack later settings, whose defaults are
    what was done before: these count there.
    """
    for section in dict.fromkeys([*left, *right]):
        if section != "seed":
            for key in dict.fromkeys([*(left.get(section) or {}), *(right.get(section) or {})]):
                if not places and key in PLACE.get(section, ()):
                    continue
                left_value, right_value = (_value(each, section, key) for each in (left, right))
                if left_value != right_value:
                    yield f"{section}.{key}", (left_value, right_value)


def other_places(trials: Iterable[Sections]) -> Mapping[str, Mapping[str, int]]:
    """The settings of `PLACE` that differ between these trials → value → how many trials have it."""
    trials = list(trials)
    found = {}
    for section, keys in PLACE.items():
        for key in keys:
            values = Counter(str(_value(each, section, key)) for each in trials)
            if len(values) > 1:
                found[f"{section}.{key}"] = values
    return found


def _value(settings: Sections, section: str, key: str) -> Any:
    """The value of a setting as it was written, or its default; None for one that does not exist."""
    own = settings.get(section) or {}
    if key in own:
        return own[key]
    field = fields_of(section).get(key) if section in schema.SECTIONS else None
    return None if field is None else as_json(field.get_default(call_default_factory=True))
