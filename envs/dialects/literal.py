"""Python literals in model text: parsed to a syntax tree, never evaluated."""

import ast
import re
import warnings
from collections.abc import Mapping

from envs.dialects.base import MAX_NESTING, check_depth, too_deep
from envs.task import JSON

MAX_PYTHON_CHARACTERS = 20_000
"""Length of Python that is parsed; a response of 4,096 tokens stays below it."""
MAX_BRACES = 1_000
"""Opening braces in Python that is parsed: the parser takes quadratic time over the fields of an f-string."""

_FILE_NAME = "<completion>"
_QUIET = ("ignore", None, Warning, re.compile(_FILE_NAME), 0)


def parse_expression(source: str) -> ast.expr:
    """The syntax tree of one Python expression. Raises only `ValueError`."""
    if len(source) > MAX_PYTHON_CHARACTERS:
        raise ValueError(f"it is longer than {MAX_PYTHON_CHARACTERS} characters")
    if source.count("{") > MAX_BRACES:
        raise ValueError(f"it has more than {MAX_BRACES} braces")
    if too_deep(source):
        raise ValueError(f"brackets are nested deeper than {MAX_NESTING}")
    if warnings.filters[:1] != [_QUIET]:
        # Odd escapes in a model's strings need no warning; as errors, such warnings would break readable calls.
        warnings.filterwarnings("ignore", module=_FILE_NAME)
    try:
        return ast.parse(source, filename=_FILE_NAME, mode="eval").body
    except SyntaxError as error:
        raise ValueError(error.msg) from error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def literal_value(node: ast.expr, *, words: Mapping[str, JSON] | None = None) -> JSON:
    """The value of a literal: constants, negative numbers, lists, tuples, dicts, and bare words.

    `words` gives the meaning of bare words; without it each is its own text, as for the official decoder of ToolACE.
    Everything else, arithmetic and calls included, raises `ValueError`.
    """
    value = _value(node, words)
    check_depth(value)
    return value


def _value(node: ast.expr, words: Mapping[str, JSON] | None) -> JSON:
    match node:
        case ast.Constant(value=value) if value is Ellipsis:
            return "..."
        case ast.Constant(value=str() | bool() | float() | None as value):
            return value
        case ast.Constant(value=int() as value):
            return _printable(value)
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -_printable(value)
        case ast.List(elts=items):
            return [_value(item, words) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item, words) for item in items)
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return {_key(key, words): _value(value, words) for key, value in pairs}
        case ast.Name(id=name):
            if words is None:
                return name
            if name not in words:
                raise ValueError(f"{name} is no value; text stands in quotes")
            return words[name]
        case _:
            raise ValueError(f"{type(node).__name__} is not a literal value")


def _printable(number: float) -> float:
    """The number. Raises `ValueError` for a hexadecimal one that is too long for decimal digits."""
    str(number)
    return number


def _key(node: ast.expr | None, words: Mapping[str, JSON] | None) -> JSON:
    if not isinstance(node, ast.Constant | ast.Name):
        raise ValueError("a dict key must be a literal")
    return _value(node, words)
