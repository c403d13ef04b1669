"""What a scene is: one simulator's start state, and the requests that make sense in its current state.

A scene keeps its own small picture of the simulator and proposes `Beat`s: a request with the calls that fulfil it. It
changes its picture only when a beat's `effect` is run, so that a beat that does not fit can be thrown away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, TypeVar

from envs.task import JSON, ToolCall
from envs.toolworld.words import Words

T = TypeVar("T")


def nothing() -> None:
    """The effect of a request that only asks."""


def call(tool: str, /, **arguments: JSON) -> ToolCall:
    """A ground-truth call, written as one."""
    return ToolCall(tool, arguments)


@dataclass(frozen=True, slots=True)
class Beat:
    """One request and the calls that fulfil it.

    `intent` names its phrases ("files.show"); `slots` are the texts put into them; `clause` names phrases of a second
    sentence (who is asking); `helpers` are tools that are worth having although no ground truth calls them; `bulk` says
    that the result grows with the state; `reads` are values of the calls that stand in a result before them.
    """

    intent: str
    calls: tuple[ToolCall, ...]
    slots: Mapping[str, str]
    effect: Callable[[], None] = nothing
    clause: str | None = None
    helpers: tuple[str, ...] = ()
    bulk: bool = False
    reads: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SceneReading:
    """Calls that bring a value to light, for another call to use; `slots` say in a request what is to be read."""

    calls: tuple[ToolCall, ...]
    slots: Mapping[str, str]
    value: JSON
    effect: Callable[[], None] = nothing


Intent = Callable[[], Beat]
"""Proposes a request that is possible now, or raises `NotNow`."""


class NotNow(Exception):
    """In the state at hand this request makes no sense."""


def require(possible: object) -> None:
    """Raises `NotNow` where the condition does not hold, or what is to be chosen from is empty."""
    if not possible:
        raise NotNow


def known(value: T | None) -> T:
    """The value. Raises `NotNow` where there is none yet."""
    if value is None:
        raise NotNow
    return value


class Scene(ABC):
    """One simulator with its start state, drawn when made. `rich` asks for long results."""

    class_name: ClassVar[str]
    makers: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Last part of an intent's name → the method that proposes it, where it has another name."""

    def __init__(self, words: Words, size: int, *, rich: bool = False) -> None:
        self.words = words
        self.rng = words.rng
        self.size = size
        self.rich = rich

    @abstractmethod
    def start_config(self) -> Mapping[str, JSON]:
        """Draws the rest of the start state and returns it. To be called once, before any effect is run."""

    @property
    @abstractmethod
    def intents(self) -> tuple[Intent, ...]:
        """Every kind of request of this scene."""

    @property
    def referring(self) -> tuple[Intent, ...]:
        """Those, and others, that bring a value to light, or have a call that needs one from the call before it."""
        return ()

    @property
    def recalling(self) -> tuple[Intent, ...]:
        """Those, and others, whose calls need a value that an earlier request has brought to light."""
        return ()

    def proposing(self, name: str) -> Intent:
        """What can propose the request that `phrases.toml` has under this name, the scene's own part of it.

        It may propose another one by chance, or in another state.
        """
        made: Intent = getattr(self, self.makers.get(name, name))
        return made


class SceneWithLogin(Scene):
    """A scene in which most requests need a login; while nobody is logged in, they also say who is asking."""

    family: ClassVar[str]
    """First part of the scene's intents, as in "trading.quote"."""
    login_tool: ClassVar[str]
    login_clause: ClassVar[str] = "account"
    """Phrases of the sentence that says who is asking."""
    _logged_in: bool
    _user: str
    _password: str

    def credentials(self) -> Mapping[str, str]:
        """The slots that say who is asking: the arguments of the tool that logs in."""
        return {"username": self._user, "password": self._password}

    def login(self) -> Beat:
        """The request that only logs in."""
        require(not self._logged_in)
        slots = self.credentials()
        return Beat(f"{self.family}.login", (call(self.login_tool, **slots),), slots, self._log_in)

    def with_login(
        self,
        intent: str,
        calls: tuple[ToolCall, ...],
        slots: Mapping[str, str],
        effect: Callable[[], None] = nothing,
        *,
        bulk: bool = False,
        reads: tuple[str, ...] = (),
    ) -> Beat:
        """The request, with the login before it where one is needed."""
        name = f"{self.family}.{intent}"
        if self._logged_in:
            return Beat(name, calls, slots, effect, bulk=bulk, reads=reads)
        credentials = self.credentials()

        def log_in_first() -> None:
            self._log_in()
            effect()

        calls = (call(self.login_tool, **credentials), *calls)
        return Beat(name, calls, {**slots, **credentials}, log_in_first, self.login_clause, bulk=bulk, reads=reads)

    def _log_in(self) -> None:
        self._logged_in = True

    def _log_out(self) -> None:
        self._logged_in = False
