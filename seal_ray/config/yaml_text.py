"""YAML as people mean it, read and written.

Scalars are those of YAML 1.2: 1e-6 is a number, `on` is a word; a key that is given twice is an error.
"""

from __future__ import annotations

import re
from typing import Any

import yaml  # type: ignore[import-untyped]

_TAG = "tag:yaml.org,2002:"
_PLAIN = {
    "null": (r"~|null|Null|NULL|", "~nN\0"),
    "bool": (r"true|True|TRUE|false|False|FALSE", "tTfF"),
    "int": (r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    "float": (
        r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+|[-+]?\.(inf|Inf)|\.(nan|NaN)",
        "-+.0123456789",
    ),
}
"""YAML 1.2's core schema: kind of a plain scalar → its pattern and first characters. PyYAML has that of YAML 1.1."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's form

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{name!r} stands there twice", key.start_mark)
            seen.add(name)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes what PyYAML would, but puts what YAML 1.2 alone takes for a number into quotes where it is text."""


for _kind, (_pattern, _first) in _PLAIN.items():
    for _side in (_Loader, _Dumper):
        _side.add_implicit_resolver(
            _TAG + _kind, re.compile(f"(?:{_pattern})$"), ["" if each == "\0" else each for each in _first]
        )


def read_yaml(text: str) -> Any:
    """The value of a YAML text. Raises `yaml.YAMLError`."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a safe loader
    # A tag that does not fit its value, or lists in lists without end.
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise yaml.YAMLError(str(error)) from None


def write_yaml(document: Any) -> str:
    """A JSON value as YAML that `read_yaml` reads back, and any other reader too."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True)
    return text


def problem_of(error: yaml.YAMLError) -> str:
    """What is wrong, and where, in a few words."""
    mark = getattr(error, "problem_mark", None)
    what = str(getattr(error, "problem", None) or str(error).split("\n")[0])
    return what if mark is None else f"line {mark.line + 1}: {what}"
