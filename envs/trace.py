"""The record of a dialogue: every step, call, result and error. Diagnosis reads nothing else.

The texts that the model was shown are for readers; they depend on the interface, and traces are compared without them.
"""

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum

from envs.task import ToolCall


@dataclass(frozen=True, slots=True)
class ParseError:
    """A part of a completion that was meant as a tool call and could not be parsed.

    `position` is its first character. `fatal` means that the official decoder then rejects the whole completion.
    """

    position: int
    message: str
    fatal: bool = True


class Availability(StrEnum):
    """Whether a called tool was available to the model."""

    SHOWN = "shown"
    HIDDEN = "hidden"
    """The world has it, but its document has not been shown (yet)."""
    UNKNOWN = "unknown"
    """The world does not have it."""


class ViolationKind(StrEnum):
    """How a call breaks its tool's public schema."""

    MISSING = "missing"
    """A required argument is absent."""
    UNKNOWN = "unknown"
    """An argument is not documented."""
    TYPE = "type"
    """A value has another type than documented."""
    ENUM = "enum"
    """A value is outside the documented choices."""
    HIDDEN_RULE = "hidden_rule"
    """A value breaks a rule of the tool that no document states."""


@dataclass(frozen=True, slots=True)
class SchemaViolation:
    """One breach of a tool's schema, by one argument; `rule` names a hidden rule."""

    kind: ViolationKind
    argument: str
    rule: str = ""

    @property
    def detail(self) -> str:
        """The name of the breach in failure profiles."""
        return self.rule or str(self.kind)


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call and its result, the environment's text without feedback.

    If room ran out the result ends in a mark, and `digest` covers all. `executed` is False if the protocol returned its
    own error. A call that was too expensive has no arguments.
    """

    call: ToolCall
    result: str
    is_error: bool
    availability: Availability
    violations: tuple[SchemaViolation, ...] = ()
    executed: bool = True
    digest: str = ""

    def returned(self, text: str) -> bool:
        """Whether the call's whole result is this text."""
        return text_digest(text) == self.digest if self.digest else text == self.result

    @property
    def clean(self) -> bool:
        """Whether the tool was shown, the schema was met and nothing failed."""
        return self.availability is Availability.SHOWN and not self.violations and not self.is_error


@dataclass(frozen=True, slots=True)
class Step:
    """One completion of the model within a turn, with its executed calls in order; a very long one is cut.

    `shown` are the texts that followed it within the turn: a result for each call, then errors, all with feedback.
    """

    turn: int
    completion: str
    calls: tuple[CallRecord, ...] = ()
    parse_errors: tuple[ParseError, ...] = ()
    shown: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class Trace:
    """A dialogue so far: one tuple of steps per turn of the task, empty for turns without a step.

    `user` has the user's message in each turn that began, and `system` the message before them.
    """

    task_id: str
    turns: tuple[tuple[Step, ...], ...]
    user: tuple[str, ...] = field(default=(), compare=False)
    system: str = field(default="", compare=False)


def text_digest(text: str) -> str:
    """A digest of a text that is too long to keep."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
