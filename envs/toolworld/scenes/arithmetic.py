"""The calculator: it has no state, so it stands beside another scene."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from envs.task import JSON, ToolCall
from envs.toolworld.scene import Beat, Intent, Scene, SceneReading, call, known

_OF_TWO = ("add", "subtract", "multiply")
_OF_MANY = ("mean", "max_value", "min_value", "sum_values")


class Arithmetic(Scene):
    class_name = "MathAPI"
    _result: int | None = None
    """What was computed last, where it is a whole number."""

    def start_config(self) -> Mapping[str, JSON]:
        return {}

    @property
    def intents(self) -> tuple[Intent, ...]:
        return (
            *(partial(self._two, tool) for tool in _OF_TWO),
            *(partial(self._many, tool) for tool in _OF_MANY),
        )

    @property
    def referring(self) -> tuple[Intent, ...]:
        return (*(partial(self._two, tool) for tool in _OF_TWO), self.sum_times, self.difference_times)

    @property
    def recalling(self) -> tuple[Intent, ...]:
        return (self.times_result, self.plus_result)

    def times_result(self) -> Beat:
        return self._with_result("times_result", "multiply")

    def plus_result(self) -> Beat:
        return self._with_result("plus_result", "add")

    def sum_times(self) -> Beat:
        a, b, factor = self.words.number(100, 900), self.words.number(10, 99), self.words.number(3, 99)
        return self._then_times("sum_times", call("add", a=a, b=b), a + b, factor)

    def difference_times(self) -> Beat:
        a, b, factor = self.words.number(100, 900), self.words.number(10, 99), self.words.number(3, 99)
        return self._then_times("difference_times", call("subtract", a=a, b=b), a - b, factor)

    def mean_of(self, intent: str, read: SceneReading) -> Beat:
        """The average of numbers that are read."""
        assert isinstance(read.value, list)
        calls = (*read.calls, call("mean", numbers=read.value))

        def effect() -> None:
            read.effect()
            self._keep(None)

        return Beat(f"arithmetic.{intent}", calls, read.slots, effect, reads=tuple(map(str, read.value)))

    def _then_times(self, intent: str, first: ToolCall, result: int, factor: int) -> Beat:
        slots = {"a": str(first.arguments["a"]), "b": str(first.arguments["b"]), "c": str(factor)}
        calls = (first, call("multiply", a=result, b=factor))
        effect = partial(self._keep, result * factor)
        return Beat(f"arithmetic.{intent}", calls, slots, effect, reads=(str(result),))

    def _with_result(self, intent: str, tool: str) -> Beat:
        """The last result, and one number more."""
        result, number = known(self._result), self.words.number(10, 99)
        calls = (call(tool, a=result, b=number),)
        effect = partial(self._keep, result * number if tool == "multiply" else result + number)
        return Beat(f"arithmetic.{intent}", calls, {"b": str(number)}, effect, reads=(str(result),))

    def _keep(self, result: int | None) -> None:
        self._result = result

    def proposing(self, name: str) -> Intent:
        return partial(self._two if name in _OF_TWO else self._many, name)

    def _two(self, tool: str) -> Beat:
        a, b = self.words.number(100, 900), self.words.number(10, 99)
        result = a + b if tool == "add" else a - b if tool == "subtract" else a * b
        effect = partial(self._keep, result)
        return Beat(f"arithmetic.{tool}", (call(tool, a=a, b=b),), {"a": str(a), "b": str(b)}, effect)

    def _many(self, tool: str) -> Beat:
        numbers = [self.words.number(10, 500) for _ in range(3)]
        slots = {name: str(number) for name, number in zip("abc", numbers, strict=True)}
        return Beat(f"arithmetic.{tool}", (call(tool, numbers=numbers),), slots, partial(self._keep, None))
