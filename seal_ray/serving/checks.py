"""The kinds of fields that a request may have: numbers, texts, lists and so on, each within bounds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from seal_ray.serving.limits import Limits, RefusedRequest

Check = Callable[[Any, str, Limits], Any]
"""Takes a field's value, its name and the limits; returns the value to go on with, or raises `RefusedRequest`."""


def wrong(place: str, reason: str, code: str = "invalid_type") -> RefusedRequest:
    return RefusedRequest(f"{place}: {reason}.", param=place, code=code)


def number(low: float, high: float) -> Check:
    def check(value: Any, place: str, _: Limits) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong(place, "it is no number")
        if not low <= value <= high or not math.isfinite(value):
            raise wrong(place, f"it must be from {low:g} to {high:g}", "out_of_range")
        return value

    return check


def whole(low: int, high: int | None) -> Check:
    """Whole numbers in these bounds; `high` None is the context."""

    def check(value: Any, place: str, limits: Limits) -> int:
        most = limits.context if high is None else high
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise wrong(place, "it is no whole number")
        if not low <= value <= most:
            raise wrong(place, f"it must be from {low} to {most}", "out_of_range")
        return value

    return check


def flag(value: Any, place: str, _: Limits) -> bool:
    if not isinstance(value, bool):
        raise wrong(place, "it is neither true nor false")
    return value


def text(most: int, least: int = 0) -> Check:
    def check(value: Any, place: str, _: Limits) -> str:
        if not isinstance(value, str):
            raise wrong(place, "it is no text")
        if not least <= len(value) <= most:
            raise wrong(
                place, f"it has {len(value)} characters; {least} to {most} are allowed", "string_above_max_length"
            )
        return value

    return check


def several(each: Check, most: int) -> Check:
    def check(value: Any, place: str, limits: Limits) -> list[Any]:
        if not isinstance(value, list):
            raise wrong(place, "it is no list")
        if len(value) > most:
            raise wrong(place, f"it has {len(value)} entries; {most} are allowed", "array_above_max_length")
        return [each(item, f"{place}[{index}]", limits) for index, item in enumerate(value)]

    return check


def object_of(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(place, "it is no object")
    return value
