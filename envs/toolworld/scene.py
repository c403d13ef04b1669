"""Base class of scenes: one simulator's start state, and the requests that make sense in its current state.

A scene keeps a small picture of its simulator and proposes `Beat`s: a request with the calls that fulfil it. Only a
beat's `effect` changes the picture, so that a beat that does not fit can be thrown away.
"""

import ast
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cache, partial
from typing import Any, ClassVar, TypeVar

from envs.task import JSON, ToolCall
from envs.toolworld.words import Words

T = TypeVar("T")
_OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
Values = dict[str, Any]
"""The values of one request by name."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A kind of request, as a row of a scene's table.

    Args:
        draws: What draws its values, in order: "text:sentence" draws one from the lexicon, "amount:number(1,9)" calls
            `Words.number`, "order<placed" recalls a fact, "_id@next" reads an attribute of the scene, "_sum=a+b"
            computes; "any_file" is a method of the scene that gets the values so far and returns more of them, or
            raises `NotNow`.
        calls: The ground truth over these values, written as calls: "mkdir(dir_name=folder); mv(source=file, …)". A
            bare name means calls that were drawn.
        effect: What changes the scene's picture, in order: "created=_id" remembers a value as a fact, "created="
            forgets it; other names are methods that get the values.
        reads: Values that appear in an earlier result.
        hides: Further values that phrases do not get. They never get values with a leading underscore.
        login: Whether the calls need a login.
        helpers: Tools that are worth showing although no ground truth calls them.
        bulk: Whether the result grows with the state.

    Example:
        `Ask("any_file name:file", "mv(source=file, destination=name)", "rename")`
    """

    draws: str
    calls: str
    effect: str = ""
    _: KW_ONLY
    reads: str = ""
    hides: str = ""
    login: bool = False
    helpers: tuple[str, ...] = ()
    bulk: bool = False


@dataclass(frozen=True, slots=True)
class Beat:
    """One request and the calls that fulfil it; `helpers`, `bulk` and `reads` are as in `Ask`.

    `intent` is the key of its phrases, such as "files.show", and `slots` are the texts that are put into these.
    `clause` is the key of the phrases of a second sentence, which says who the user is.
    """

    intent: str
    calls: tuple[ToolCall, ...]
    slots: Mapping[str, str]
    effect: Callable[[], None]
    clause: str | None = None
    helpers: tuple[str, ...] = ()
    bulk: bool = False
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SceneReading:
    """Calls that return a value for a call of another scene; `slots` say in a request what is to be read."""

    calls: tuple[ToolCall, ...]
    slots: Mapping[str, str]
    value: JSON
    effect: Callable[[], None]


Intent = Callable[[], Beat]
"""Proposes a request that is possible now, or raises `NotNow`."""


class NotNow(Exception):
    """The request makes no sense in the current state."""


def require(possible: T) -> T:
    """The condition, or the collection to choose from. Raises `NotNow` if it is false or empty."""
    if not possible:
        raise NotNow
    return possible


def known(value: T | None) -> T:
    """The value. Raises `NotNow` if there is none yet."""
    if value is None:
        raise NotNow
    return value


class Scene(ABC):
    """One simulator with its start state, drawn at construction. With `rich` its results are long."""

    class_name: ClassVar[str]
    rows: ClassVar[Mapping[str, Ask]]
    requests: ClassVar[str]
    """Rows that a turn can ask for; a name that appears twice is drawn twice as often."""
    referring_requests: ClassVar[str] = ""
    """Rows that reveal a value, or with a call that needs one from the call before it."""
    recalling_requests: ClassVar[str] = ""
    """Rows whose calls need a value that an earlier request has revealed."""
    makers: ClassVar[Mapping[str, str]] = {}
    """Last part of an intent → the row that proposes it, if the names differ."""
    login_clause: ClassVar[str] = "account"
    """Key of the phrases that say who the user is."""

    def __init__(self, words: Words, size: int, *, rich: bool = False) -> None:
        self.words = words
        self.rng = words.rng
        self.size = size
        self.rich = rich
        self.logged_in = True
        self.facts: dict[str, Any] = {}
        self._proposers: dict[str, Intent] = {}
        self.draw_start()

    def draw_start(self) -> None:  # noqa: B027 - arithmetic has no state
        """Draws the start state."""

    @abstractmethod
    def start_config(self) -> Mapping[str, JSON]:
        """Draws the rest of the start state and returns it. Call it once, before any effect is run."""

    @property
    def intents(self) -> tuple[Intent, ...]:
        return tuple(map(self.proposing, self.requests.split()))

    @property
    def referring(self) -> tuple[Intent, ...]:
        return tuple(map(self.proposing, self.referring_requests.split()))

    @property
    def recalling(self) -> tuple[Intent, ...]:
        return tuple(map(self.proposing, self.recalling_requests.split()))

    def proposing(self, name: str) -> Intent:
        """The proposer of the request that `phrases.toml` lists under this name in the scene's section.

        It may propose another request by chance, or in another state.
        """
        row = self.makers.get(name, name)
        return self._proposers.setdefault(row, partial(self.propose, row))

    def propose(self, name: str, reading: SceneReading | None = None) -> Beat:
        """The request of a row, with values drawn now; `reading` has what a call of another scene returns."""
        row, values = self.rows[name], Values()
        if reading is not None:
            values = {**reading.slots, "_read": reading.calls, "_value": reading.value}
        self._draw(row, values)
        calls, clause, before = self._calls(row, values), None, [] if reading is None else [reading.effect]
        said = self._said(row, values)
        if row.login and not self.logged_in:
            who = self.credentials({})
            calls, clause = (*self._calls(self.rows["login"], who), *calls), self.login_clause
            said |= who
            before = [partial(self.log_in, who), *before]
        read = [values[key] for key in row.reads.split()]
        reads = tuple(str(item) for each in read for item in (each if isinstance(each, list) else [each]))
        intent = f"{type(self).__name__.lower()}.{values.get('_intent', name)}"
        effect = partial(self._run, row, values, before)
        return Beat(intent, calls, said, effect, clause, row.helpers, values.get("_bulk", row.bulk), reads)

    def reading(self, name: str) -> SceneReading:
        """The calls of a row, for the value that the row reads."""
        row, values = self.rows[name], Values()
        self._draw(row, values)
        effect = partial(self._run, row, values, [])
        return SceneReading(self._calls(row, values), self._said(row, values), values[row.reads], effect)

    def credentials(self, _values: Values) -> Values:
        """The values of the row "login"; they are put into the login clause too."""
        raise NotImplementedError

    def log_in(self, _values: Values) -> None:
        self.logged_in = True

    def log_out(self, _values: Values) -> None:
        self.logged_in = False

    def is_logged_in(self, _values: Values) -> None:
        require(self.logged_in)

    def is_logged_out(self, _values: Values) -> None:
        require(not self.logged_in)

    def _draw(self, row: Ask, values: Values) -> None:
        for draw in row.draws.split():
            name, sign, kind = re.split(r"([:<@=]|$)", draw, maxsplit=1)
            method, _, limits = kind.partition("(")
            if sign == "<":
                values[name] = known(self.facts.get(kind))
            elif sign == "@":
                values[name] = getattr(self, f"_{kind}")
            elif sign == "=":
                a, operation, b = re.split(r"([-+*])", kind)
                values[name] = _OPERATIONS[operation](values[a], values[b])
            elif limits:
                values[name] = getattr(self.words, method)(*map(int, limits.rstrip(")").split(",")))
            elif sign:
                values[name] = self.words.draw(kind)
            else:
                values |= getattr(self, name)(values) or {}

    @staticmethod
    def _calls(row: Ask, values: Values) -> tuple[ToolCall, ...]:
        calls: list[ToolCall] = []
        for node in _templates(row.calls):
            if isinstance(node, ast.Call):
                arguments = {str(keyword.arg): _filled(keyword.value, values) for keyword in node.keywords}
                calls.append(ToolCall(ast.unparse(node.func), arguments))
            else:
                calls += _filled(node, values)
        return tuple(calls)

    @staticmethod
    def _said(row: Ask, values: Values) -> dict[str, str]:
        hidden = {*row.reads.split(), *row.hides.split()}
        return {name: str(value) for name, value in values.items() if name[0] != "_" and name not in hidden}

    def _run(self, row: Ask, values: Values, before: Sequence[Callable[[], None]]) -> None:
        for effect in before:
            effect()
        for change in row.effect.split():
            name, sign, value = change.partition("=")
            if sign:
                self.facts[name] = values[value] if value else None
            else:
                getattr(self, name)(values)


@cache
def _templates(calls: str) -> tuple[ast.expr, ...]:
    return tuple(statement.value for statement in ast.parse(calls).body if isinstance(statement, ast.Expr))


def _filled(node: ast.expr, values: Values) -> Any:
    """The value of an argument: a constant, a value by name, or a list or dict of these."""
    match node:
        case ast.Name(id=name):
            return values[name]
        case ast.List(elts=items):
            return [_filled(item, values) for item in items]
        case ast.Dict(keys=[ast.Constant(value=key)], values=[item]):
            return {key: _filled(item, values)}
        case ast.Constant(value=value):
            return value
    raise ValueError(f"no argument: {ast.unparse(node)}")
