"""BFCL's single-turn categories as an exam: one question, and the calls of one answer, graded as officially.

The data comes with the package `bfcl-eval`, which has the third version's categories under the fourth's file names.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.bfcl import checking
from envs.bfcl.tools import read_entries
from envs.bounded import BoundedProcess, program_of
from envs.dialogue import Message
from envs.exams import Candidate, Conversation, Entry, Exam, Mark, Past
from envs.task import JSON, ToolCall, ToolDoc

CATEGORIES = (
    *("simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple", "irrelevance"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple", "live_irrelevance", "live_relevance"),
)

_SYNTAX = {"python": "Python 3", "java": "Java 8 SDK", "javascript": "JavaScript"}
_NAMES = {"java": "Java", "javascript": "JavaScript"}
_LISTS = {"java": ("ArrayList", "Array"), "javascript": ("array",)}


class SingleTurnExam(Exam):
    """3,641 questions in thirteen categories."""

    name = "bfcl-v3-single-turn"
    about = "single questions of BFCL"

    def __init__(self) -> None:
        self._checker = BoundedProcess(
            lambda: program_of(checking.__name__, "bfcl_eval"), seconds=5.0 * checking.SECONDS
        )
        self._items = [SingleTurnItem(self, name, *entry) for name in CATEGORIES for entry in read_entries(name)]

    def items(self) -> Sequence[SingleTurnItem]:
        return self._items

    def close(self) -> None:
        self._checker.close()

    def check(self, item: SingleTurnItem, calls: Sequence[ToolCall]) -> str | None:
        """Why the official checker calls the calls wrong, or None. Never raises."""
        request = {
            "functions": item.entry["function"],
            "calls": repr([{call.name: dict(call.arguments)} for call in calls]),  # JSON has no tuples
            "answers": item.answers,
            "language": item.language,
            "category": item.category,
        }
        reply: dict[str, str | None] = self._checker.ask(request) or {"error": "the values take too long to read"}
        return reply["error"]


@dataclass(frozen=True, slots=True, eq=False)
class SingleTurnItem:
    """One entry of the data files. `answers` is None if the right answer is to call nothing, or anything."""

    exam: SingleTurnExam
    category: str
    entry: Mapping[str, Any]
    answers: Sequence[Mapping[str, Any]] | None
    after: str | None = field(default=None, init=False)
    counts: bool = field(default=True, init=False)

    @property
    def id(self) -> str:
        return str(self.entry["id"])

    @property
    def group(self) -> str:
        return self.id

    @property
    def language(self) -> str:
        return self.category.removeprefix("simple_") if self.category.startswith("simple_") else "python"

    def conversation(self) -> Conversation:
        """The question with its functions, as the official function-calling handlers show them."""
        shown = [shown_document(each, self.language) for each in self.entry["function"]]
        tools = tuple(ToolDoc(each["name"], "", each, ()) for each in shown)
        entries: list[Entry] = [
            Past(each["content"]) if each["role"] == "assistant" else Message(each["role"], each["content"])
            for each in self.entry["question"][0]
        ]
        return Conversation(tools, tuple(entries))

    async def sit(self, candidate: Candidate, before: JSON) -> Mark:  # noqa: ARG002 - nothing comes before
        said = await candidate.answer(self.conversation())
        if said.end != "stop":
            return Mark(False, "cut off")
        calls = candidate.dialect.parse(said.text).graded_calls
        if self.answers is None:
            wanted = "irrelevance" not in self.category
            return Mark(bool(calls) is wanted, "" if bool(calls) is wanted else f"{len(calls)} calls")
        why = await asyncio.to_thread(self.exam.check, self, calls)
        return Mark(why is None, (why or "")[:300])


def shown_document(function: Mapping[str, Any], language: str) -> dict[str, JSON]:
    """The document that a model is shown: with a sentence on the language, and other values than Python's as text."""
    hint = f" Note that the provided function is in {_SYNTAX[language]} syntax."
    shown: dict[str, Any] = {**function, "description": function["description"] + hint}
    if language == "python":
        return shown
    properties = function["parameters"]["properties"]
    shown["parameters"] = {
        **function["parameters"],
        "properties": {name: _as_text(value, language) for name, value in properties.items()},
    }
    return shown


def _as_text(parameter: Mapping[str, Any], language: str) -> dict[str, JSON]:
    """A parameter whose value is written as text in another language."""
    kind, name, shown = parameter["type"], _NAMES[language], dict(parameter)
    if kind == "any":
        shown["description"] += f" This parameter can be of any type of {name} object in string representation."
    else:
        shown["description"] += f" This is {name} {kind} type parameter in string representation."
    if kind in _LISTS[language]:
        inner = shown.pop("items")["type"]
        shown["description"] += f" The list elements are of type {inner}; they are not in string representation."
    if language == "javascript" and kind == "dict" and "properties" in shown:
        schema = json.dumps(shown.pop("properties"))
        shown["description"] += (
            f" The dictionary entries have the following schema; they are not in string representation. {schema}"
        )
    return {**shown, "type": "string"}
