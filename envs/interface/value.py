"""The learning interface Ω: how existing information is shown to the solver during training (SEAL eq. 8-9).

Ω never changes tool semantics, results, labels or the verifier. It has three parts: schema cues (φ_schema), recovery
feedback (φ_err) and guidelines (φ_cap). The plain interface is the identity, and the only one evaluation may use.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from enum import StrEnum

MAX_GUIDELINES = 8
"""Guidelines that an interface may show at once."""
MAX_GUIDELINE_CHARACTERS = 400
"""Length of one guideline."""

_NOT_PLAIN_TEXT = re.compile(r"\{\{|\}\}|\{%|%\}|\{#|<\|.*?\|>|</?tool_call>|</?tool_response>|</?tools>|\[/?INST\]")
"""Template syntax and chat control marks, which have no place in a guideline."""


class CueKind(StrEnum):
    """A kind of schema cue: a part of the public documentation that is repeated where the model will see it."""

    REQUIRED = "required"
    """Names the required arguments in the tool's description."""
    ENUM = "enum"
    """Spells the allowed values out at the argument, as a structured `enum` too."""
    TYPE = "type"
    """Spells the argument's type out in its description."""
    FORMAT = "format"
    """Shows once, before the dialogue, how a call is written."""


class RecoveryLevel(StrEnum):
    """How much feedback follows an error."""

    NONE = "none"
    """Nothing is added."""
    CLASS = "class"
    """Names the class of the error and the way to go on."""
    SCHEMA = "schema"
    """Also repeats the public schema of the tool concerned."""


@dataclass(frozen=True, slots=True, order=True)
class SchemaCue:
    """A schema cue for some tools, or for all where `tools` is empty. The format cue concerns no single tool."""

    kind: CueKind
    tools: tuple[str, ...] = ()

    def concerns(self, tool: str) -> bool:
        return not self.tools or tool in self.tools


@dataclass(frozen=True, slots=True)
class Interface:
    """One interface, as a value.

    `fade`, 0 to 1, is kept for documents that have it. It shows nothing, and training does not read it: how many groups
    play plain is the run's affair (`curator.plain_share`).
    """

    schema_cues: tuple[SchemaCue, ...] = ()
    recovery: RecoveryLevel = RecoveryLevel.NONE
    guidelines: tuple[str, ...] = ()
    fade: float = 0.0

    @classmethod
    def plain(cls) -> Interface:
        """The identity: the benchmark as published."""
        return cls()

    @property
    def is_plain(self) -> bool:
        """Whether showing this interface changes nothing."""
        return not self.schema_cues and self.recovery is RecoveryLevel.NONE and not self.guidelines

    def with_more(self, other: Interface) -> Interface:
        """This interface and what another one shows: its cues, the fuller feedback, its guidelines behind these.

        Where there are more guidelines than fit, the first ones go. Cues and tools are in the order that documents are
        read in, so that one that is written and read again is the same value. `fade` stays.
        """
        tools: dict[CueKind, tuple[str, ...]] = {}
        for cue in (*self.schema_cues, *other.schema_cues):
            known = tools.get(cue.kind)
            everywhere = not cue.tools or known == ()
            tools[cue.kind] = () if everywhere else tuple(dict.fromkeys((*(known or ()), *cue.tools)))
        levels = list(RecoveryLevel)
        guidelines = tuple(dict.fromkeys((*self.guidelines, *other.guidelines)))[-MAX_GUIDELINES:]
        return replace(
            self,
            schema_cues=tuple(sorted(SchemaCue(kind, tuple(sorted(names))) for kind, names in tools.items())),
            recovery=max(self.recovery, other.recovery, key=levels.index),
            guidelines=guidelines,
        )

    def has_cue(self, kind: CueKind, tool: str = "") -> bool:
        """Whether a cue of that kind is on, for that tool where one is named."""
        return any(cue.kind is kind and (not tool or cue.concerns(tool)) for cue in self.schema_cues)


def guideline_fault(text: str) -> str | None:
    """What keeps a text from being a guideline, in half a sentence about it that repeats nothing of it, or None."""
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
    """What changed: "+ …" for what `after` adds, "- …" for what it drops, "~ …" for what it sets; empty when equal."""
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
