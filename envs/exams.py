"""Exams: benchmarks that are not trained on, as suites of items, and the registry of suites.

A suite defines its items, their questions and how answers are judged. It is independent of models: an item talks to a
`Candidate`. A custom suite is a class with the members of `Exam`; a setting names it as `package.module:NAME`, or by an
entry point in the group `seal_ray.exams`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from envs.dialects import Dialect
from envs.dialogue import Message
from envs.registry import Registry
from envs.task import JSON, ToolCall, ToolDoc


@dataclass(frozen=True, slots=True)
class Past:
    """An earlier answer from the benchmark's data: text, then calls, which the model's dialect renders."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class Said:
    """A candidate's answer, with its sampled token ids.

    `end` is "stop", or the budget that cut it off: "response", or "context" if the prompt leaves no room. Calls of an
    answer that was cut off do not count.
    """

    text: str
    token_ids: tuple[int, ...] = ()
    end: str = "stop"


Entry = Message | Past | Said
"""A message of the environment's side, or an answer: from the data, or of this candidate."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The input of a candidate: tools and the dialogue so far, which begins with a message.

    If the last entry is a `Past` without calls, the answer continues its text.
    """

    tools: tuple[ToolDoc, ...]
    entries: tuple[Entry, ...]


class Candidate(Protocol):
    """The model under test."""

    @property
    def dialect(self) -> Dialect:
        """How it writes calls."""

    async def answer(self, conversation: Conversation) -> Said:
        """Its answer. Raises only if no answer can be sampled any more."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The judgement of an item, with a short reason; `kept` is a JSON value for the items that come after it."""

    right: bool
    why: str = ""
    kept: JSON = None


class Placed(Protocol):
    """An item's place in its suite.

    Items of one `group` share something that makes their outcomes dependent, such as a dialogue: intervals count
    groups. An item with `after` runs once that item is done, and gets its `kept`. One that does not count is a
    preparation.
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
        """Questions the candidate and judges its answers. No answer raises."""


class Exam(Protocol):
    """A suite, made from its `Settings`, if it has any. Making one reads its data and starts nothing.

    Raises `UserError` if something is missing.
    """

    name: str
    about: str
    """The subject of the exam, as a phrase: "API calls in …"."""

    def items(self) -> Sequence[Item]:
        """All items, in a fixed order, each behind the one that it comes after."""

    def notes(self) -> Sequence[str]:
        """Sentences to show with the scores: on what the answers depend, such as a service or a package.

        They stay the same from the first item to the last. Different notes mean a different exam.
        """
        return ()

    def close(self) -> None:
        """Ends what judging has started."""
        return


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


def calls_of(dialect: Dialect, said: Said) -> tuple[ToolCall, ...]:
    """The calls of an answer, as the dialect's official decoder reads it; none if it was cut off."""
    return dialect.parse(said.text).official_calls if said.end == "stop" else ()
