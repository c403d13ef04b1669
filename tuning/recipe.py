"""Recipes: the settings in which trials must agree to be comparable. No Ray."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from envs.errors import UserError
from seal_ray.config import schema
from seal_ray.config.sections import PLACE, fields_of
from seal_ray.report.files import as_json

Sections = Mapping[str, Any]
"""The settings of a trial, section → setting → value."""

SAME = {
    "environment": tuple(key for key in schema.EnvironmentSection.model_fields if key != "reward"),
    "training": ("rounds", "groups", "group_size", "dynamic_sampling", "fill", "fill_limit"),
    "evaluation": tuple(schema.EvaluationSection.model_fields),
    "solver": ("model",),
}
"""Section → settings that compared trials must share, including settings of earlier versions."""


def check_arms(arms: Mapping[str, Sections]) -> None:
    """Raises `UserError` if arms differ in settings that must be equal."""
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
    """(section.key, both values) of all settings that differ, except the seed; without `places`, except `PLACE` too.

    Runs of earlier versions lack later settings, whose defaults are the earlier behaviour: these count instead.
    """
    for section in dict.fromkeys([*left, *right]):
        if section != "seed":
            for key in dict.fromkeys([*(left.get(section) or {}), *(right.get(section) or {})]):
                if not places and key in PLACE.get(section, ()):
                    continue
                values = (_value(left, section, key), _value(right, section, key))
                if values[0] != values[1]:
                    yield f"{section}.{key}", values


def place_differences(trials: Iterable[Sections]) -> Mapping[str, Mapping[str, int]]:
    """The settings of `PLACE` that differ between these trials → value → number of trials with it."""
    trials = list(trials)
    counts = {
        f"{section}.{key}": Counter(str(_value(settings, section, key)) for settings in trials)
        for section, keys in PLACE.items()
        for key in keys
    }
    return {name: values for name, values in counts.items() if len(values) > 1}


def _value(settings: Sections, section: str, key: str) -> Any:
    """The value of a setting, or its default; None for a setting that does not exist."""
    values = settings.get(section) or {}
    if key in values:
        return values[key]
    field = fields_of(section).get(key) if section in schema.SECTIONS else None
    return None if field is None else as_json(field.get_default(call_default_factory=True))
