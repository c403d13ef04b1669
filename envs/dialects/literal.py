"""Python literals in model text: parsed to a syntax tree, never evaluated."""

import ast
import re
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping

from envs.dialects.base import MAX_NESTING, check_depth, too_deep
from envs.task import JSON

MAX_PYTHON_CHARACTERS = 20_000
"""Length of Python that is parsed; a response of 4,096 tokens stays below it."""
MAX_BRACES = 1_000
"""Opening braces in Python that is parsed: the parser takes quadratic time over the fields of an f-string."""

_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n\f]+|\#[^\n]*|\\\r?\n)
    |(?P<text>\"{3}|'{3}|\"|')
    |(?P<word>[A-Za-z_\x80-\U0010ffff][\w\x80-\U0010ffff]*)
    |(?P<number>\d[\w.]*(?:(?<=[eE])[+-]\w*)?|\.\d[\w.]*|\.{3})
    |(?P<open>[(\[{])|(?P<close>[)\]}])|(?P<mark>[-+*/%@&|^~<>=!.,:;`])""",
    re.VERBOSE,
)
_UNFINISHED = ("\\", "\\\r", ".", "..", '"', "'", '""', "''")
"""Ends of a text that are no token yet, or the start of a longer one."""
_GROWING = ("space", "word", "number")
"""Kinds of tokens that the next character may continue."""
_IN_TEXT = {
    quote: re.compile(rf"\\.|{quote}" + ("" if quote[1:] else r"|\n"), re.DOTALL) for quote in ('"""', "'''", '"', "'")
}
_PAIRS = ("()", "[]", "{}")
_TEXT_PREFIXES = ("r", "b", "u", "f", "rb", "br", "rf", "fr")
_WORDS = ("true", "false", "null", "True", "False", "None", "NaN", "Infinity")

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


class _Prefix(ABC):
    """A text as it arrives: whether it may still become readable. A wrong yes is allowed, a wrong no is not."""

    def __init__(self, begin: int) -> None:
        self._position = begin
        self._ended = False
        self._quote = ""
        """The quote that ends the text inside which `_position` is."""
        self._open = ""
        """The brackets that are open."""
        self._last = ""
        """The kind of the last token: "" for none, an opening bracket or a mark; "call" for a round bracket."""

    def may_go_on(self, text: str) -> bool:
        """Reads the new characters of the text. Once False, always False."""
        while not self._ended and self._position < len(text):
            if self._quote:
                match = _IN_TEXT[self._quote].search(text, self._position)
                self._position = match.end() if match else max(self._position, len(text) - 2)
                if match is None:
                    break
                self._ended = match.group() == "\n"
                if match.group() == self._quote:
                    self._quote = ""
                continue
            match = _TOKEN.match(text, self._position)
            if text[self._position : self._position + 3] in _UNFINISHED:
                break
            if match is None:
                self._ended = True
                break
            kind, token = str(match.lastgroup), match.group()
            if match.end() == len(text) and kind in _GROWING:
                self._ended = kind == "word" and not self._may_start(token)
                break
            self._position = match.end()
            is_prefix = token.lower() in _TEXT_PREFIXES and text[match.end()] in "\"'"
            if kind != "space" and not is_prefix:
                self._take(kind, token)
        return not self._ended

    def _take(self, kind: str, token: str) -> None:
        if kind == "close":
            self._ended = not self._closes(token)
            self._open, self._last = self._open[:-1], "call" if token == ")" else kind
            return
        self._ended = not self._fits(kind, token)
        if kind == "text":
            self._quote = token
        self._open += token if kind == "open" else ""
        self._last = "" if kind in ("open", "mark") else kind

    def _closes(self, bracket: str) -> bool:
        """Whether the bracket closes the innermost open one."""
        return self._open[-1:] + bracket in _PAIRS

    def _may_start(self, word: str) -> bool:
        """Whether a word, or a text with a prefix, may follow that starts in this way."""
        may_be_prefix = any(prefix.startswith(word.lower()) for prefix in _TEXT_PREFIXES)
        return self._fits("word", word) or (may_be_prefix and self._fits("text", word))

    @abstractmethod
    def _fits(self, kind: str, token: str) -> bool:
        """Whether a token that closes nothing may follow."""


class LiteralPrefix(_Prefix):
    """JSON or Python literals that begin with a bracket: `several` in a row, or one object."""

    def __init__(self, begin: int, *, several: bool) -> None:
        super().__init__(begin)
        self._several = several
        self._begun = False

    def _may_start(self, word: str) -> bool:
        return any(known.startswith(word) for known in _WORDS) or word.lower() in _TEXT_PREFIXES

    def _fits(self, kind: str, token: str) -> bool:
        if not self._begun:
            self._begun = True
            return token == "{" or (token == "[" and self._several)
        if kind == "word" and token not in _WORDS:
            return False
        if not self._open:
            return self._several and (token in ("[", "{", ";", ",", "-") or kind in ("word", "number", "text"))
        if kind == "mark":
            return token in (",", ":", "-")
        return self._last == "" or self._last == kind == "text"


class CallsPrefix(_Prefix):
    """A Python list of calls, with or without its brackets, which backticks may follow."""

    def __init__(self, begin: int, *, listed: bool) -> None:
        super().__init__(begin)
        self._listed = listed
        """Whether the list has its opening bracket."""
        self._complete = False

    def _closes(self, bracket: str) -> bool:
        if self._complete:
            return False
        if bracket == "]" and len(self._open) == self._listed:
            self._complete = True
            return self._last in ("", "call")
        return super()._closes(bracket)

    def _fits(self, kind: str, token: str) -> bool:
        if self._complete:
            return token == "`"
        if len(self._open) > self._listed:
            return token not in ("`", ";")
        if token == "`":
            self._complete = self._last == "call"
            return self._complete
        if kind == "mark":
            return token == "." or (token == "," and self._last == "call")
        return kind == "open" or self._last == "" or self._last == kind == "text"


def _printable(number: float) -> float:
    """The number. Raises `ValueError` for a hexadecimal one that is too long for decimal digits."""
    str(number)
    return number


def _key(node: ast.expr | None, words: Mapping[str, JSON] | None) -> JSON:
    if not isinstance(node, ast.Constant | ast.Name):
        raise ValueError("a dict key must be a literal")
    return _value(node, words)
