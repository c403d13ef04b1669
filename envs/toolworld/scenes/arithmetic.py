"""The calculator: it has no state, so it accompanies another scene."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from envs.task import JSON
from envs.toolworld.scene import Intent, Row, Scene, Values, known

_OF_TWO = ("add", "subtract", "multiply")
_OF_MANY = ("mean", "max_value", "min_value", "sum_values")


class Arithmetic(Scene):
    class_name = "MathAPI"
    rows: ClassVar[Mapping[str, Row]] = {
        **{tool: Row(f"two_numbers {tool}_them", f"{tool}(a=a, b=b)", "note_result") for tool in _OF_TWO},
        **{tool: Row("three_numbers", f"{tool}(numbers=_numbers)", "forget_result") for tool in _OF_MANY},
        "times_result": Row("last_result multiply_it", "multiply(a=_last, b=b)", "note_result", "_last"),
        "plus_result": Row("last_result add_it", "add(a=_last, b=b)", "note_result", "_last"),
        "sum_times": Row(
            "two_numbers add_them factor", "add(a=a, b=b); multiply(a=_first, b=c)", "note_result", "_first"
        ),
        "difference_times": Row(
            "two_numbers subtract_them factor",
            "subtract(a=a, b=b); multiply(a=_first, b=c)",
            "note_result",
            "_first",
        ),
        "mean_prices": Row("", "_read; mean(numbers=_value)", "forget_result", "_value"),
        "mean_pressures": Row("", "_read; mean(numbers=_value)", "forget_result", "_value"),
    }
    requests = " ".join((*_OF_TWO, *_OF_MANY))
    recalling_requests = "times_result plus_result"
    _last: int | None = None
    """The last result, if it is a whole number."""

    def start_config(self) -> Mapping[str, JSON]:
        return {}

    @property
    def referring(self) -> tuple[Intent, ...]:
        # Proposers of their own, so that these requests are counted apart from the plain ones.
        return tuple(partial(self.propose, name) for name in (*_OF_TWO, "sum_times", "difference_times"))

    def two_numbers(self, _: Values) -> Values:
        return {"a": self.words.number(100, 900), "b": self.words.number(10, 99)}

    def three_numbers(self, _: Values) -> Values:
        numbers = [self.words.number(10, 500) for _ in range(3)]
        return {"_numbers": numbers, **dict(zip("abc", numbers, strict=True))}

    def add_them(self, values: Values) -> Values:
        return {"_result": values["a"] + values["b"]}

    def subtract_them(self, values: Values) -> Values:
        return {"_result": values["a"] - values["b"]}

    def multiply_them(self, values: Values) -> Values:
        return {"_result": values["a"] * values["b"]}

    def factor(self, values: Values) -> Values:
        factor = self.words.number(3, 99)
        return {"c": factor, "_first": values["_result"], "_result": values["_result"] * factor}

    def last_result(self, _: Values) -> Values:
        return {"_last": known(self._last), "b": self.words.number(10, 99)}

    def add_it(self, values: Values) -> Values:
        return {"_result": values["_last"] + values["b"]}

    def multiply_it(self, values: Values) -> Values:
        return {"_result": values["_last"] * values["b"]}

    def note_result(self, values: Values) -> None:
        self._last = values["_result"]

    def forget_result(self, _: Values) -> None:
        self._last = None
