"""A parameter of a sweep. No Ray."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, FiniteFloat

from envs.task import JSON

Value = str | float | int | bool | None


Choice = Annotated[str, Field(max_length=200)] | float | int | bool | None


@dataclass(frozen=True, slots=True)
class SweptParameter:
    """A setting of a sweep, `section.key`.

    Where `choices` is None it takes the numbers from `low` to `high`, `whole` ones or all.
    """

    name: Annotated[str, Field(pattern=r"^[a-z_]+\.[A-Za-z0-9_.-]{1,80}$")]
    choices: Annotated[tuple[Choice, ...], Field(max_length=100)] | None = None
    low: FiniteFloat = 0.0
    high: FiniteFloat = 0.0
    log: bool = False
    whole: bool = False

    @property
    def is_possible(self) -> bool:
        """Whether there are values between its bounds, above 0 if they are drawn by their logarithm."""
        return self.choices is not None or (self.low <= self.high and (self.low > 0 or not self.log))

    def takes(self, value: Value) -> bool:
        """Whether this can be its value."""
        if self.choices is not None:
            return value in self.choices
        return type(value) in (int, float) and self.low <= float(value or 0) <= self.high

    @property
    def path(self) -> tuple[str, str]:
        """Section and key."""
        section, _, key = self.name.partition(".")
        return section, key

    @property
    def probes(self) -> Sequence[Value]:
        """The values at its edges."""
        if self.choices is not None:
            return self.choices
        return [int(self.low), int(self.high)] if self.whole else [self.low, self.high]

    def clamped(self, value: Any) -> Any:
        """The nearest value that it can take; of choices, the value itself."""
        if self.choices is not None:
            return value
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.whole else float(inside)

    def value_in(self, config: Mapping[str, JSON]) -> Value:
        """Its value in the sections of a config; None where they do not have it."""
        section, key = self.path
        values = config.get(section)
        value: Value = values.get(key) if isinstance(values, Mapping) else None
        return value
