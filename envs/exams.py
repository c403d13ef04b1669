"""Exams: benchmarks that nobody trained for, as suites of items, and how a suite is found by its name.

A suite is a folder or a file that knows its items, what each asks, and how an answer is judged. It knows no model: an
item talks to a `Candidate`, and what it is told is data. A suite of one's own is a class with the members of `Exam`; a
setting names it by its import path, `package.module:NAME`, or by an entry point in the group `seal_ray.exams`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from envs.dialects import Dialect
from envs.dialogue import Message
from envs.registry import Registry
from envs.task import JSON, ToolCall, ToolDoc


@dataclass(frozen=True, slots=True)
class Past:
    """An earlier answer, from the benchmark's data: text, then calls, which the model's dialect writes."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """What a candidate said. `token_ids` are its tokens as they were sampled.

    `end` is "stop", or the budget that cut it off: "response", "context" for a prompt that leaves no room. What was cut
    off is kept, and nothing acts on it: `calls` of a text that was cut off are none.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    end: str = "stop"


Entry = Message | Past | Said
"""A message of the environment's side, or an answer: of the data, or of this candidate."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What a candidate is to answer: tools, and what was said so far. The first entry is a message.

    Where the last entry is a `Past` without calls, the answer goes on in the same message, behind its text.
    """

    tools: tuple[ToolDoc, ...]
    entries: tuple[Entry, ...]


class Candidate(Protocol):
    """Who sits an exam."""

    @property
    def dialect(self) -> Dialect:
        """How it writes calls."""
        ...

    async def answer(self, conversation: Conversation) -> Said:
        """Its answer. Raises where it cannot be asked any more; nothing that it says raises."""
        ...


@dataclass(frozen=True, slots=True)
class Mark:
    """The judgement of an item: whether it is right, and why not in a few words.

    `kept` is a JSON value that the items that come after it get to see.
    """

    right: bool
    why: str = ""
    kept: JSON = None


class Placed(Protocol):
    """Where an item stands in its suite.

    `group` names what items share that makes their outcomes depend on each other, such as a dialogue: intervals count
    groups. An item with `after` is asked once the item of that id is done, and gets what that kept. One that does
    not count is a preparation.
    """

    @property
    def id(self) -> str: ...

    @property
    def category(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def after(self) -> str | None: ...

    @property
    def counts(self) -> bool: ...


class Item(Placed, Protocol):
    """One question, or one conversation."""

    async def sit(self, candidate: Candidate, before: JSON) -> Mark:
        """Asks the candidate and judges its answers. Nothing that it says raises."""
        ...


class Exam(Protocol):
    """A suite. Made from its `Settings`, if it has any; making one reads what it needs and starts nothing.

    Raises `UserError` where something is missing.
    """

    name: str
    about: str
    """What it asks, as a phrase: "API calls in …"."""

    def items(self) -> Sequence[Item]:
        """All items, in a fixed order, an item behind the one that it comes after."""
        ...

    def notes(self) -> Sequence[str]:
        """Sentences that must stand beside the scores: of what answers depend on, as a service or a package.

        They are the same from the first item to the last. Where they differ, it is another exam.
        """
        ...

    def close(self) -> None:
        """Ends what judging has started."""
        ...


EXAMS: Registry[type[Exam]] = Registry(
    "suite",
    "seal_ray.exams",
    {
        "api-bank": "envs.apibank.exam:ApiBankExam",
        "bfcl-v3-single-turn": "envs.bfcl.single_turn:SingleTurnExam",
        "bfcl-v4-memory": "envs.bfcl.memory_exam:MemoryExam",
        "bfcl-v4-memory-vector": "envs.bfcl.memory_exam:VectorMemoryExam",
        "bfcl-v4-web-search": "envs.bfcl.web_exam:WebSearchExam",
    },
)
"""The suites by name."""


def first_call(dialect: Dialect, said: Said) -> ToolCall | None:
    """The first call of an answer, as the official decoder of the dialect reads it; None where there is none."""
    calls = calls_of(dialect, said)
    return calls[0] if calls else None


def calls_of(dialect: Dialect, said: Said) -> tuple[ToolCall, ...]:
    """The calls of an answer, as the official decoder of the dialect reads it; none of one that was cut off."""
    return dialect.parse(said.text).official_calls if said.end == "stop" else ()
