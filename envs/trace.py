"""What happened in a dialogue, as data: every step, call, result and error. Diagnosis reads nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum

from envs.task import ToolCall


@dataclass(frozen=True, slots=True)
class ParseError:
    """A stretch of a completion that was meant as a tool call and could not be read as one.

    `position` is the index of its first character. `fatal` says that the official decoder of the dialect gives up on
    the whole completion because of it, so that under the official protocol no call of the completion is executed.
    """

    position: int
    message: str
    fatal: bool = True


class Availability(StrEnum):
    """Whether a called tool was there for the model to call."""

    SHOWN = "shown"
    HIDDEN = "hidden"
    """It exists in the simulators, but its document has not been shown (yet)."""
    UNKNOWN = "unknown"
    """No involved simulator has it."""


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


@dataclass(frozen=True, slots=True)
class SchemaViolation:
    """One breach of a tool's public schema, by one argument."""

    kind: ViolationKind
    argument: str


@dataclass(frozen=True, slots=True)
class CallRecord:
    """One call and its result.

    `result` is the environment's text before any interface touches it; `executed` is False where the protocol answered
    with an error of its own instead of running the call. Where the dialogue's room ran out, `result` ends in a mark and
    `digest` is that of the whole text; a call that was not executed for its cost is kept without its arguments.
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
        """A success as intended: shown, within the schema, executed without error."""
        return self.availability is Availability.SHOWN and not self.violations and not self.is_error


@dataclass(frozen=True, slots=True)
class Step:
    """One completion of the model within a turn, with its calls in order, as far as the allowance went.

    A completion longer than any dialect reads is kept in its first part, with a mark.
    """

    turn: int
    completion: str
    calls: tuple[CallRecord, ...] = ()
    parse_errors: tuple[ParseError, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole dialogue, as far as it got.

    `turns` holds one tuple of steps for each turn of the task, empty for turns without a step.
    """

    task_id: str
    turns: tuple[tuple[Step, ...], ...]


def text_digest(text: str) -> str:
    """Stands for a text that is too long to keep."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
