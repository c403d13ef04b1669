"""A parameter of a sweep. No Ray."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, FiniteFloat

from envs.task import JSON

Value = str | float | int | bool | None
Choice = Annotated[str, Field(max_length=200)] | float | int | bool | None
MOST = 100
"""Largest number of parameters, and of choices of one."""


@dataclass(frozen=True, slots=True)
class SweptParameter:
    """A setting of a sweep, `section.key`: one of `choices`, or without them a number from `low` to `high`."""

    name: Annotated[str, Field(pattern=r"^[a-z_]+\.[A-Za-z0-9_.-]{1,80}$")]
    choices: Annotated[tuple[Choice, ...], Field(max_length=MOST)] | None = None
    low: FiniteFloat = 0.0
    high: FiniteFloat = 0.0
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        """Raises `ValueError` for a range without values, or a logarithmic one that is not above 0."""
        if self.choices is None and (self.low > self.high or (self.log and self.low <= 0)):
            raise ValueError(f"{self.name} can have no value")

    def takes(self, value: Value) -> bool:
        """Whether it can have this value."""
        if self.choices is not None:
            return value in self.choices
        return type(value) in (int, float) and self.low <= float(value or 0) <= self.high

    @property
    def path(self) -> tuple[str, str]:
        """Section and key."""
        section, _, key = self.name.partition(".")
        return section, key

    @property
    def edges(self) -> Sequence[Value]:
        """Its smallest and largest value; all choices."""
        if self.choices is not None:
            return self.choices
        return [int(self.low), int(self.high)] if self.whole else [self.low, self.high]

    def clamped(self, value: Any) -> Any:
        """The nearest value of its range; a choice stays unchanged."""
        if self.choices is not None:
            return value
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.whole else float(inside)

    def value_in(self, config: Mapping[str, JSON]) -> Value:
        """Its value in the sections of a config; None if they lack it."""
        section, key = self.path
        values = config.get(section)
        value: Value = values.get(key) if isinstance(values, Mapping) else None
        return value
