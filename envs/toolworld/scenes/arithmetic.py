"""The calculator: it has no state, so it accompanies another scene."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar

from envs.task import JSON
from envs.toolworld.scene import Ask, Intent, Scene, Values

_OF_TWO = {"add": "+", "subtract": "-", "multiply": "*"}
_TWO = "a:number(100,900) b:number(10,99)"
_OF_MANY = ("mean", "max_value", "min_value", "sum_values")


def _twice(tool: str, first: str) -> Ask:
    """Multiplies the result of a first calculation."""
    draws = f"{_TWO} _ab={first} c:number(3,99) _result=_ab*c"
    return Ask(draws, f"{tool}(a=a, b=b); multiply(a=_ab, b=c)", "last=_result", reads="_ab")


class Arithmetic(Scene):
    class_name = "MathAPI"
    rows: ClassVar[Mapping[str, Ask]] = {
        **{
            tool: Ask(f"{_TWO} _result=a{sign}b", f"{tool}(a=a, b=b)", "last=_result") for tool, sign in _OF_TWO.items()
        },
        **{tool: Ask("three_numbers", f"{tool}(numbers=_numbers)", "last=") for tool in _OF_MANY},
        "times_result": Ask("_a<last b:number(10,99) _result=_a*b", "multiply(a=_a, b=b)", "last=_result", reads="_a"),
        "plus_result": Ask("_a<last b:number(10,99) _result=_a+b", "add(a=_a, b=b)", "last=_result", reads="_a"),
        "sum_times": _twice("add", "a+b"),
        "difference_times": _twice("subtract", "a-b"),
        "mean_prices": Ask("", "_read; mean(numbers=_value)", "last=", reads="_value"),
        "mean_pressures": Ask("", "_read; mean(numbers=_value)", "last=", reads="_value"),
    }
    requests = " ".join((*_OF_TWO, *_OF_MANY))
    recalling_requests = "times_result plus_result"

    def start_config(self) -> Mapping[str, JSON]:
        return {}

    @property
    def referring(self) -> tuple[Intent, ...]:
        # Proposers of their own, so that these requests are counted apart from the plain ones.
        return tuple(partial(self.propose, name) for name in (*_OF_TWO, "sum_times", "difference_times"))

    def three_numbers(self, _: Values) -> Values:
        numbers = [self.words.number(10, 500) for _ in range(3)]
        return {"_numbers": numbers, **dict(zip("abc", numbers, strict=True))}
