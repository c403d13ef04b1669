"""The calculator: it has no state, so it stands beside another scene."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from envs.task import JSON
from envs.toolworld.scene import Beat, Intent, Scene, call

_OF_TWO = ("add", "subtract", "multiply")
_OF_MANY = ("mean", "max_value", "min_value", "sum_values")


class Arithmetic(Scene):
    class_name = "MathAPI"

    def start_config(self) -> Mapping[str, JSON]:
        return {}

    @property
    def intents(self) -> tuple[Intent, ...]:
        return (
            *(partial(self._two, tool) for tool in _OF_TWO),
            *(partial(self._many, tool) for tool in _OF_MANY),
        )

    def proposing(self, name: str) -> Intent:
        return partial(self._two if name in _OF_TWO else self._many, name)

    def _two(self, tool: str) -> Beat:
        a, b = self.words.number(100, 900), self.words.number(10, 99)
        return Beat(f"arithmetic.{tool}", (call(tool, a=a, b=b),), {"a": str(a), "b": str(b)})

    def _many(self, tool: str) -> Beat:
        numbers = [self.words.number(10, 500) for _ in range(3)]
        slots = {name: str(number) for name, number in zip("abc", numbers, strict=True)}
        return Beat(f"arithmetic.{tool}", (call(tool, numbers=numbers),), slots)
