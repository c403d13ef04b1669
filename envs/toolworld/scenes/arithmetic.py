"""The calculator: it has no state, so it stands beside another scene."""

from __future__ import annotations

from collections.abc import Mapping

from envs.task import JSON
from envs.toolworld.scene import Beat, Intent, Scene, call


class Arithmetic(Scene):
    class_name = "MathAPI"

    def start_config(self) -> Mapping[str, JSON]:
        return {}

    @property
    def intents(self) -> tuple[Intent, ...]:
        return (self.add, self.subtract, self.multiply, self.mean, self.largest, self.smallest, self.total)

    def add(self) -> Beat | None:
        return self._two("add")

    def subtract(self) -> Beat | None:
        return self._two("subtract")

    def multiply(self) -> Beat | None:
        return self._two("multiply")

    def mean(self) -> Beat | None:
        return self._many("mean")

    def largest(self) -> Beat | None:
        return self._many("max_value")

    def smallest(self) -> Beat | None:
        return self._many("min_value")

    def total(self) -> Beat | None:
        return self._many("sum_values")

    def _two(self, tool: str) -> Beat:
        a, b = self.words.number(100, 900), self.words.number(10, 99)
        return Beat(f"arithmetic.{tool}", (call(tool, a=a, b=b),), {"a": str(a), "b": str(b)})

    def _many(self, tool: str) -> Beat:
        numbers = [self.words.number(10, 500) for _ in range(3)]
        slots = {name: str(number) for name, number in zip("abc", numbers, strict=True)}
        return Beat(f"arithmetic.{tool}", (call(tool, numbers=numbers),), slots)
