"""Whether calls are among the possible answers of a single-turn entry: the official rules, on structured calls.

A possible answer maps a function's name to its arguments, each with the list of values that are right; "" among them
says that the argument may be left out. Values are compared by type first: Python's in most categories; in Java's and
JavaScript's every argument is a text, which `convert` reads as the official converters do. Where the official code
raises, the answer is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from envs.task import JSON, ToolCall

Convert = Callable[[str, str, str | None], JSON]
"""Text, documented type and the type of its items → value. Raises `ValueError` for what cannot be read."""

_PYTHON: Mapping[str, type] = MappingProxyType(
    {
        "string": str,
        "any": str,
        "integer": int,
        "float": float,
        "boolean": bool,
        "array": list,
        "tuple": list,
        "dict": dict,
    }
)
_JAVA: Mapping[str, type] = MappingProxyType(
    {
        **dict.fromkeys(("byte", "short", "integer", "long"), int),
        **dict.fromkeys(("float", "double"), float),
        **dict.fromkeys(("char", "String", "any"), str),
        **dict.fromkeys(("Array", "ArrayList", "Queue", "Stack"), list),
        **dict.fromkeys(("HashMap", "Hashtable"), dict),
        "boolean": bool,
        "Set": set,
    }
)
_JAVASCRIPT: Mapping[str, type] = MappingProxyType(
    {
        **dict.fromkeys(("String", "any"), str),
        **dict.fromkeys(("integer", "Bigint"), int),
        "float": float,
        "Boolean": bool,
        "dict": dict,
        "array": list,
    }
)
TYPES: Mapping[str, Mapping[str, type]] = MappingProxyType(
    {"python": _PYTHON, "java": _JAVA, "javascript": _JAVASCRIPT}
)
"""Language → documented type → the type that a value must have."""

_OF_ITEMS = {"python": ("array", "tuple"), "java": ("Array", "ArrayList"), "javascript": ("array",)}
_IGNORED = re.compile(r"[ ,./\-_*^]")
OPTIONAL = ""


class Wrong(Exception):
    """A call is not the answer; its text says why."""


def check(
    functions: Sequence[Mapping[str, Any]],
    calls: Sequence[ToolCall],
    answers: Sequence[Mapping[str, Mapping[str, Sequence[JSON]]]],
    *,
    language: str = "python",
    kind: str = "simple",
    convert: Convert | None = None,
) -> str | None:
    """Why the calls are not the answer; None where they are.

    `kind` is "simple", one call of the one function; "multiple", one call of the right function of several; or
    "parallel", several calls in any order. `convert` is needed where the language is not Python.
    """
    if len(calls) != (1 if kind == "simple" else len(answers)):
        return f"{len(calls)} calls, not {len(answers)}"
    left = list(calls)
    for answer in answers:
        name = next(iter(answer))
        function = functions[0] if kind == "simple" else next(each for each in functions if each["name"] == name)
        reasons = []
        for place, call in enumerate(left):
            try:
                _check_call(function, call, answer[name], language, convert)
            except Wrong as reason:
                reasons.append(str(reason))
            except (
                TypeError,
                AttributeError,
                KeyError,
                ValueError,
                OverflowError,
                RecursionError,
                IndexError,
            ) as error:
                reasons.append(f"{type(error).__name__}: {error}")
            else:
                del left[place]
                break
        else:
            return reasons[0] if len(reasons) == 1 else f"no call is {name}: {'; '.join(reasons)}"
    return None


def _check_call(
    function: Mapping[str, Any],
    call: ToolCall,
    expected: Mapping[str, Sequence[JSON]],
    language: str,
    convert: Convert | None,
) -> None:
    """Raises `Wrong`, or what cannot be compared at all."""
    documented = function["parameters"]["properties"]
    if call.name != function["name"]:
        raise Wrong(f"called {call.name[:80]!r}, not {function['name']!r}")
    for name in function["parameters"]["required"]:
        if name not in call.arguments:
            raise Wrong(f"{name!r} is missing")
    for name, given in call.arguments.items():
        if name not in documented or name not in expected:
            raise Wrong(f"{name[:80]!r} is not expected")
        kind, value = documented[name]["type"], given
        wanted = TYPES[language][kind]
        of_items = documented[name]["items"]["type"] if kind in _OF_ITEMS[language] else None
        if language != "python":
            if type(value) is not str:
                raise Wrong(f"{name!r} is no text")
            assert convert is not None, "other languages have a converter"
            value = convert(value, kind, of_items)
        elif kind == "float" and type(value) is int:
            value = float(value)
        elif kind == "tuple" and type(value) is tuple:
            value = list(value)
        items = None if of_items is None else TYPES[language][of_items]
        if not _is_right(value, expected[name], wanted, items):
            raise Wrong(f"{name!r} is {repr(given)[:100]}")
    for name, values in expected.items():
        if name not in call.arguments and OPTIONAL not in values:
            raise Wrong(f"{name!r} is left out")


def _is_right(value: JSON, answers: Sequence[JSON], wanted: type, items: type | None) -> bool:
    """Whether a value of the documented type, or of the answers' own, is among the answers."""
    fits, as_it_is = _fits(value, answers, wanted, items)
    if not fits:
        return False
    if as_it_is:
        return value in answers
    if wanted is dict:
        return any(answer != OPTIONAL and _same_dict(value, answer) for answer in answers)
    if wanted is list and items is dict:
        return any(
            len(value) == len(answer)
            and all(known != OPTIONAL and _same_dict(each, known) for each, known in zip(value, answer, strict=True))
            for answer in answers
        )
    if wanted is str:
        return _plain(value) in [_plain(answer) for answer in answers if type(answer) is str]
    if wanted is list:
        plain = [_plain(each) for each in value]
        # "" has no items: where the argument may be left out, no items are right too.
        return plain in [[_plain(each) for each in answer] for answer in answers]
    return value in answers


def _fits(value: JSON, answers: Sequence[JSON], wanted: type, items: type | None) -> tuple[bool, bool]:
    """Whether the type is right, and whether the value must be compared as it is.

    The latter is so where the answers have another type than is documented: they then name a variable.
    """
    own = next((type(answer) for answer in answers if answer != OPTIONAL), None)
    variable = own is not None and own is not wanted
    if type(value) is wanted:
        if items is None:
            return True, variable
        return any(_fit_items(value, answer, items) for answer in answers), variable
    return own is not None and type(value) is own, True


def _fit_items(value: JSON, answer: JSON, items: type) -> bool:
    return type(answer) is not list or all(_fits(each, answer, items, None)[0] for each in value)


def _same_dict(value: Mapping[str, JSON], answer: Mapping[str, Sequence[JSON]]) -> bool:
    for key, each in value.items():
        if key not in answer or _plain(each) not in [_plain(known) for known in answer[key]]:
            return False
    return all(key in value or OPTIONAL in known for key, known in answer.items())


def _plain(value: JSON) -> JSON:
    """A text without what writers differ in: case, blanks, some punctuation and the kind of quotes."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if type(value) is str else value
