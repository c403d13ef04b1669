"""The learning interface Ω: how existing information is shown to the solver during training (SEAL eq. 8-9).

Ω never changes tool semantics, results, labels or the verifier. It has schema cues (φ_schema), recovery feedback
(φ_err) and guidelines (φ_cap). The plain interface is the identity, and the only one that evaluation uses.
"""

import re
import unicodedata
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field

MAX_GUIDELINES = 8
MAX_GUIDELINE_CHARACTERS = 400

_NOT_PLAIN_TEXT = re.compile(r"\{\{|\}\}|\{%|%\}|\{#|<\|.*?\|>|</?tool_call>|</?tool_response>|</?tools>|\[/?INST\]")
"""Template syntax and chat control marks."""


class CueKind(StrEnum):
    """A part of the public documentation that is repeated in a prominent place."""

    REQUIRED = "required"
    """Lists the required arguments in the tool's description."""
    ENUM = "enum"
    """Lists the allowed values at the argument, also as a structured `enum`."""
    TYPE = "type"
    """States the argument's type in its description."""
    FORMAT = "format"
    """Shows once, before the dialogue, how to write a call."""


class RecoveryLevel(StrEnum):
    """The amount of feedback after an error."""

    NONE = "none"
    CLASS = "class"
    """States the class of the error and what to do."""
    SCHEMA = "schema"
    """Also repeats the tool's public schema."""


@dataclass(frozen=True, slots=True, order=True)
class SchemaCue:
    """A schema cue for some tools, or for all if `tools` is empty. The format cue concerns no single tool."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    kind: CueKind
    tools: tuple[str, ...] = ()

    def concerns(self, tool: str) -> bool:
        return not self.tools or tool in self.tools


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface. `fade`, 0 to 1, is that of documents from elsewhere; training refuses one above 0."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    schema_cues: tuple[SchemaCue, ...] = ()
    recovery: RecoveryLevel = RecoveryLevel.NONE
    guidelines: Annotated[tuple[str, ...], Field(max_length=MAX_GUIDELINES)] = ()
    fade: Annotated[float, Field(ge=0.0, le=1.0, strict=True, allow_inf_nan=False)] = 0.0

    @classmethod
    def plain(cls) -> Self:
        """The identity: the benchmark as published."""
        return cls()

    @property
    def is_plain(self) -> bool:
        """Whether this interface changes nothing."""
        return not self.schema_cues and self.recovery is RecoveryLevel.NONE and not self.guidelines


def guideline_fault(text: str) -> str | None:
    """Why a text cannot be a guideline, in half a sentence that repeats nothing of it, or None."""
    if not text.strip():
        return "is empty"
    if len(text) > MAX_GUIDELINE_CHARACTERS:
        return f"has {len(text)} characters, at most {MAX_GUIDELINE_CHARACTERS} fit"
    if not text.isprintable():
        return "must be one line of printable text"
    # Some tokenizers read wide and other compatible forms of a character as the character.
    if _NOT_PLAIN_TEXT.search(text) or _NOT_PLAIN_TEXT.search(unicodedata.normalize("NFKC", text)):
        return "must be plain text without template or control marks"
    return None


def interface_diff(before: Interface, after: Interface) -> tuple[str, ...]:
    """The changes: "+ …" for additions, "- …" for removals, "~ …" for new settings; empty if equal."""
    lines = [f"- cue {_cue(cue)}" for cue in before.schema_cues if cue not in after.schema_cues]
    lines += [f"+ cue {_cue(cue)}" for cue in after.schema_cues if cue not in before.schema_cues]
    if before.recovery is not after.recovery:
        lines.append(f"~ recovery feedback: {before.recovery} → {after.recovery}")
    lines += [f"- guideline: {text}" for text in before.guidelines if text not in after.guidelines]
    lines += [f"+ guideline: {text}" for text in after.guidelines if text not in before.guidelines]
    if not lines and before.guidelines != after.guidelines:
        lines.append("~ guidelines: another order")
    if before.fade != after.fade:
        lines.append(f"~ fade: {before.fade:g} → {after.fade:g}")
    return tuple(lines)


def _cue(cue: SchemaCue) -> str:
    return f"{cue.kind} on {', '.join(cue.tools) or 'every tool'}"
