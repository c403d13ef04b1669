"""The space of a sweep: settings, by the names that the command line knows, and the values that each can take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from ray import tune

from envs.errors import UserError
from envs.received import read_yaml
from envs.trusting import trust_names
from seal_ray.algorithm.checks import check_run
from seal_ray.algorithm.config import SealConfig, apply
from seal_ray.config.fields import attribute
from seal_ray.config.schema import KINDS
from seal_ray.config.sections import check_key, make_section
from tuning.recipe import SAME
from tuning.sweep.parameter import SweptParameter, Value

DEFAULT_SPACE = Path(__file__).with_name("default_space.yaml")


class Entry(BaseModel):
    """What a space file says of a parameter: `values`, or all from `low` to `high`, both included.

    `log` draws a number evenly in its logarithm; `around` does, from the config's own value divided by it to that value
    times it. `when` names settings, and values of them without which the parameter
    has no effect; where the swept config has others, the parameter is left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    values: list[Value] | None = Field(default=None, min_length=1)
    low: float | int | None = None
    high: float | int | None = None
    log: bool = False
    around: float | None = Field(default=None, gt=1.0)
    when: dict[str, list[Value]] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        bounds = self.low is not None, self.high is not None
        if bounds[0] != bounds[1] or (self.values is not None) + bounds[0] + (self.around is not None) != 1:
            raise ValueError("give either values, or low and high, or around")
        if self.low is None and self.log:
            raise ValueError("log is for low and high")
        if self.low is not None and self.high is not None:
            if self.low >= self.high:
                raise ValueError("low must be below high")
            if self.log and self.low <= 0:
                raise ValueError("log needs a low above 0")
        return self


@dataclass(frozen=True, slots=True)
class Space:
    """The parameters of a sweep; `left_out` are names of those that have no effect on the swept config."""

    parameters: tuple[SweptParameter, ...]
    left_out: tuple[str, ...] = ()

    def for_tune(self, *, choices: Callable[[list[Value]], Any] = tune.choice) -> dict[str, Any]:
        """The parameter space of Tune: flat settings as `SealTrial` takes them.

        `choices` says how one of several values is taken: drawn, tried in turn (`tune.grid_search`), or, as a plain
        `list`, moved along by PBT, which scales whatever is drawn.
        """
        return {attribute(*each.path): _domain(each, choices) for each in self.parameters}

    @property
    def grid_size(self) -> int | None:
        """Number of points; None where a parameter takes all numbers of a range."""
        sizes = [None if each.choices is None else len(each.choices) for each in self.parameters]
        return None if None in sizes else math.prod(filter(None, sizes))


def read_space(path: Path, config: SealConfig) -> Space:
    """Reads a space file: under `parameters`, names with `values`, or `low` and `high`.

    Every value is tried on the config. Raises `UserError` for what cannot be read, is no setting, does not fit, or
    must be the same in all trials.
    """
    document = read_yaml(path, "--space")
    trust_names(document, path)
    entries = document.get("parameters") if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not entries or set(document) != {"parameters"}:
        raise UserError(f"--space: {path} holds no space; write section.key: {{low: 0, high: 1}} under parameters.")
    found = {name: _entry(str(name), entry) for name, entry in entries.items()}
    kept = {name: entry for name, entry in found.items() if _has_effect(entry, config)}
    if not kept:
        raise UserError(f"--space: no parameter of {path} has an effect on this config; see `when` in the file.")
    parameters = tuple(_parameter(name, entry, config) for name, entry in kept.items())
    for each in parameters:
        for value in each.probes:
            check_run(with_values(config, {each.name: value}).spec)
    return Space(parameters, tuple(name for name in found if name not in kept))


def with_values(config: SealConfig, values: Mapping[str, Value]) -> SealConfig:
    """A copy of the config with other values of some parameters."""
    changed: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, key = SweptParameter(name).path
        changed.setdefault(section, {})[key] = value
    return apply(config.copy(copy_frozen=False), changed)


def _entry(name: str, written: Any) -> Entry:
    try:
        entry = Entry.model_validate(written)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, problem["loc"]))
        said = problem["msg"].removeprefix("Value error, ")
        raise UserError(f"--space: {name}: {where + ': ' if where else ''}{said}.") from None
    for setting in (name, *entry.when):
        _check_name(setting)
    section, key = SweptParameter(name).path
    if key in SAME.get(section, ()):
        raise UserError(
            f"--space: {name}: it must be the same in all trials, or they cannot be held against each other."
        )
    return entry


def _check_name(name: str) -> None:
    section, dot, key = name.partition(".")
    if not dot:
        raise UserError(f"--space: {name!r:.80} is no setting; write section.key, for instance training.lr.")
    check_key(section, key)


def _has_effect(entry: Entry, config: SealConfig) -> bool:
    sections = config.to_sections()
    return all(SweptParameter(name).value_in(sections) in allowed for name, allowed in entry.when.items())


def _parameter(name: str, entry: Entry, config: SealConfig) -> SweptParameter:
    if entry.values is not None:
        return SweptParameter(name, choices=tuple(entry.values))
    whole = not _takes_fractions(name)
    if entry.around is not None:
        own = SweptParameter(name).value_in(config.to_sections())
        if not isinstance(own, int | float) or own <= 0:
            raise UserError(f"--space: {name}: it is {own!r:.40}, and around takes numbers above 0.")
        low, high, log = own / entry.around, own * entry.around, True
        if whole:
            low, high = max(1, round(low)), round(high)
    else:
        assert entry.low is not None
        assert entry.high is not None
        low, high, log = entry.low, entry.high, entry.log
        if whole and not (float(low).is_integer() and float(high).is_integer()):
            raise UserError(f"--space: {name}: it takes whole numbers; give whole numbers as low and high.")
    return SweptParameter(name, low=float(low), high=float(high), log=log, whole=whole)


def _takes_fractions(name: str) -> bool:
    """Whether the setting is a number with a fraction. What lies in its bounds is asked elsewhere."""
    section, key = SweptParameter(name).path
    for fraction in (0.5, 1.5):
        try:
            make_section(section, {**({"kind": "llm"} if section in KINDS else {}), key: fraction})
        except UserError:
            continue
        return True
    return False


def _domain(parameter: SweptParameter, choices: Callable[[list[Value]], Any]) -> Any:
    """How Tune draws the parameter, or goes through its values."""
    if parameter.choices is not None:
        return choices(list(parameter.choices))
    if parameter.whole:
        above = int(parameter.high) + 1  # Tune leaves the upper bound of whole numbers out
        return tune.lograndint(int(parameter.low), above) if parameter.log else tune.randint(int(parameter.low), above)
    return (
        tune.loguniform(parameter.low, parameter.high) if parameter.log else tune.uniform(parameter.low, parameter.high)
    )
