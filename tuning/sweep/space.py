"""The space of a sweep: settings by their names on the command line, with the values that they can have."""

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
from seal_ray.config.sections import attribute, check_key, fields_of, takes
from tuning.recipe import SAME
from tuning.sweep.parameter import MOST, Choice, SweptParameter, Value

DEFAULT_SPACE = Path(__file__).with_name("default_space.yaml")


class Entry(BaseModel):
    """A parameter of a space file: `values`, or all numbers from `low` to `high`, or `around` the config's own value.

    Attributes:
        log: Draws evenly in the logarithm.
        around: The factor by which the config's own value is divided for `low` and multiplied for `high`.
        when: Settings and their values that the parameter needs to have an effect; otherwise it is left out.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    values: list[Choice] | None = Field(default=None, min_length=1, max_length=MOST)
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
    """The parameters of a sweep; `left_out` has the names of those without effect on the swept config."""

    parameters: tuple[SweptParameter, ...]
    left_out: tuple[str, ...] = ()

    def for_tune(self, *, choices: Callable[[list[Value]], Any] = tune.choice) -> dict[str, Any]:
        """The parameter space of Tune: flat settings as `SealTrial` takes them.

        `choices` makes a domain of several values: drawn, a grid (`tune.grid_search`), or for PBT a plain `list`, in
        which it moves to a neighbour (it would scale drawn values).
        """
        return {attribute(*each.path): _domain(each, choices) for each in self.parameters}

    @property
    def grid_size(self) -> int | None:
        """Number of points; None if a parameter has a range."""
        sizes = [None if each.choices is None else len(each.choices) for each in self.parameters]
        return None if None in sizes else math.prod(filter(None, sizes))


def read_space(path: Path, config: SealConfig) -> Space:
    """Reads a space file, and checks every value on the config.

    Raises:
        UserError: An entry cannot be read, is no setting, does not fit, or must be the same in all trials.
    """
    document = read_yaml(path, "--space")
    trust_names(document, path)
    entries = document.get("parameters") if isinstance(document, dict) else None
    if not isinstance(entries, dict) or not entries or set(document) != {"parameters"}:
        raise UserError(f"--space: {path} holds no space; write section.key: {{low: 0, high: 1}} under parameters.")
    parsed = {name: _entry(str(name), entry) for name, entry in entries.items()}
    kept = {name: entry for name, entry in parsed.items() if _has_effect(entry, config)}
    if not kept:
        raise UserError(f"--space: no parameter of {path} has an effect on this config; see `when` in the file.")
    if len(kept) > MOST:
        raise UserError(f"--space: {path} has {len(kept)} parameters; {MOST} are allowed.")
    parameters = tuple(_parameter(name, entry, config) for name, entry in kept.items())
    for parameter in parameters:
        for value in parameter.edges:
            check_run(with_values(config, {parameter.name: value}).spec, weights=False)
    return Space(parameters, tuple(name for name in parsed if name not in kept))


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
        parts = [*map(str, problem["loc"]), problem["msg"].removeprefix("Value error, ")]
        raise UserError(f"--space: {name}: {': '.join(parts)}.") from None
    for setting in (name, *entry.when):
        _check_name(setting)
    section, key = SweptParameter(name).path
    if key in SAME.get(section, ()):
        raise UserError(f"--space: {name}: it must be the same in all trials, or they cannot be compared.")
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
    section, key = SweptParameter(name).path
    whole = not takes(fields_of(section)[key], "number")
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


def _domain(parameter: SweptParameter, choices: Callable[[list[Value]], Any]) -> Any:
    if parameter.choices is not None:
        return choices(list(parameter.choices))
    if parameter.whole:
        draw = tune.lograndint if parameter.log else tune.randint
        return draw(int(parameter.low), int(parameter.high) + 1)  # Tune excludes the upper bound of whole numbers
    return (tune.loguniform if parameter.log else tune.uniform)(parameter.low, parameter.high)
