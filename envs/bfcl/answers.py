"""The official rules of BFCL's single-turn categories, on structured calls.

A possible answer maps a function's name to its arguments, each with the list of right values; "" among them makes the
argument optional. Types are compared first: Python's in most categories. In Java's and JavaScript's every argument is a
text, which `convert` reads as the official converters do. If the official code raises, the answer is wrong.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from envs.task import JSON, ToolCall

Convert = Callable[[str, str, str | None], JSON]
"""Text, documented type and the type of its items → value. Raises `ValueError` for what cannot be read."""


def _types(**names: str) -> dict[str, type]:
    """Documented type → Python type, from Python type → documented types."""
    python = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict, "set": set}
    return {name: python[kind] for kind, listed in names.items() for name in listed.split()}


TYPES: Mapping[str, Mapping[str, type]] = {
    "python": _types(str="string any", int="integer", float="float", bool="boolean", list="array tuple", dict="dict"),
    "java": _types(
        int="byte short integer long",
        float="float double",
        str="char String any",
        list="Array ArrayList Queue Stack",
        dict="HashMap Hashtable",
        bool="boolean",
        set="Set",
    ),
    "javascript": _types(
        str="String any", int="integer Bigint", float="float", bool="Boolean", dict="dict", list="array"
    ),
}
"""Language → documented type → the type that a value must have."""

_OF_ITEMS = {"python": ("array", "tuple"), "java": ("Array", "ArrayList"), "javascript": ("array",)}
_IGNORED = re.compile(r"[ ,./\-_*^]")
OPTIONAL = ""


class Wrong(Exception):
    """A call is not the answer; the text is the reason."""


def check(
    functions: Sequence[Mapping[str, Any]],
    calls: Sequence[ToolCall],
    answers: Sequence[Mapping[str, Mapping[str, Sequence[JSON]]]],
    *,
    language: str = "python",
    kind: str = "simple",
    convert: Convert | None = None,
) -> str | None:
    """Why the calls are not the answer, or None. `convert` is needed unless the language is Python.

    A "simple" answer is one call of the one function, a "multiple" one of the right function of several; "parallel"
    are several calls in any order.
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
            except (TypeError, AttributeError, LookupError, ValueError, OverflowError, RecursionError) as error:
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
    """Raises `Wrong`, or another error if values cannot be compared."""
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
        # "" has no items: if the argument is optional, an empty list is right too.
        return plain in [[_plain(each) for each in answer] for answer in answers]
    return value in answers


def _fits(value: JSON, answers: Sequence[JSON], wanted: type, items: type | None) -> tuple[bool, bool]:
    """Whether the type is right, and whether the value is compared exactly.

    It is if the answers have another type than is documented: they then name a variable.
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
    return all(
        key in answer and _plain(item) in [_plain(known) for known in answer[key]] for key, item in value.items()
    ) and all(key in value or OPTIONAL in known for key, known in answer.items())


def _plain(value: JSON) -> JSON:
    """A text without case, spaces, some punctuation and the kind of quotes."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if type(value) is str else value
