"""API-Bank as an exam: the model gets the history before each call of a dialogue, and writes the call.

As in the benchmark's evaluator, the first call of an answer is executed on the initial databases, and the rule of its
API compares the result with the recorded one; another name than the expected one is wrong. At level 1 the APIs of the
dialogue are shown, at level 2 only the search for APIs.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pydantic import BaseModel

from envs.apibank import data
from envs.apibank.simulators import ApiSimulators, Recorded
from envs.dialects import Dialect
from envs.dialogue import Message
from envs.exams import Candidate, Conversation, Entry, Mark, Past, calls_of
from envs.task import JSON, ToolDoc

INSTRUCTION = (
    "You help a user with the tools that you are given. The conversation so far needs one tool call next: answer with "
    "that call and nothing else. This year is 2023."
)


class ApiBankExam:
    """Levels 1 and 2. `data` is the folder api-bank of the benchmark's repository."""

    name = "api-bank"
    about = "API calls in the dialogues of API-Bank, levels 1 and 2"

    class Settings(BaseModel, extra="forbid"):
        data: str | None = None

    def __init__(self, settings: Settings) -> None:
        folder = data.folder_of(settings.data)
        self._dialogues = data.read_dialogues(folder)
        self.simulators = ApiSimulators(folder, data.recorded_results(self._dialogues))

    @cached_property
    def _described(self) -> dict[str, dict[str, JSON]]:
        return self.simulators.describe()

    @cached_property
    def tools(self) -> Mapping[str, ToolDoc]:
        return data.read_tools(self._described)

    def items(self) -> Sequence[ApiCall]:
        calls = []
        for dialogue in self._dialogues:
            places = [place for place, row in enumerate(dialogue.rows) if isinstance(row, Recorded)]
            calls += [ApiCall(self, dialogue, place, number) for number, place in enumerate(places)]
        return calls

    def notes(self) -> Sequence[str]:
        calls = Counter(each.call.name for dialogue in self._dialogues for each in dialogue.calls)
        absent = [name for name, each in self._described.items() if not each["runs"] and calls[name]]
        if not absent:
            return ()
        names = ", ".join(f"{name} ({calls[name]})" for name in sorted(absent))
        return (
            f"APIs that need packages, a network or a database that is not there answer with what the benchmark "
            f"recorded for the same arguments, and with an error for others; calls of them: {names}.",
        )

    def close(self) -> None:
        self.simulators.close()


@dataclass(frozen=True, slots=True, eq=False)
class ApiCall:
    """The call in row `place` of a dialogue, its `number`-th from 0."""

    exam: ApiBankExam
    dialogue: data.RecordedDialogue
    place: int
    number: int
    after: str | None = field(default=None, init=False)
    counts: bool = field(default=True, init=False)

    @property
    def id(self) -> str:
        return f"{self.dialogue.id}#{self.number}"

    @property
    def category(self) -> str:
        return self.dialogue.level

    @property
    def group(self) -> str:
        return self.dialogue.id

    @property
    def truth(self) -> Recorded:
        row = self.dialogue.rows[self.place]
        assert isinstance(row, Recorded)
        return row

    def conversation(self, dialect: Dialect) -> Conversation:
        """The history before the call."""
        tools = self.exam.tools
        names = self.dialogue.shown_names
        entries = history(self.dialogue.rows[: self.place], tools, dialect)
        system = Message("system", INSTRUCTION)
        return Conversation(tuple(tools[name] for name in names if name in tools), (system, *entries))

    async def sit(self, candidate: Candidate, before: JSON) -> Mark:  # noqa: ARG002 - nothing comes before
        said = await candidate.answer(self.conversation(candidate.dialect))
        call = next(iter(calls_of(candidate.dialect, said)), None)
        if call is None:
            return Mark(False, "no call")
        if call.name != self.truth.call.name:
            return Mark(False, f"called {call.name[:80]!r}, not {self.truth.call.name!r}")
        judged = await asyncio.to_thread(self.exam.simulators.judge, call, self.truth.result)
        return Mark(bool(judged.correct), "" if judged.correct else (judged.error or "the API's rule says no")[:200])


def history(rows: Sequence[data.Row], tools: Mapping[str, ToolDoc], dialect: Dialect) -> list[Entry]:
    """Rows of a dialogue as a conversation; a text of the assistant and the call after it are one answer."""
    entries: list[Entry] = []
    for row in rows:
        if isinstance(row, data.Text) and row.user:
            entries.append(Message("user", row.text))
            continue
        before = entries.pop() if entries and isinstance(entries[-1], Past) else Past()
        assert isinstance(before, Past)
        if isinstance(row, data.Text):
            entries.append(Past("\n".join(filter(None, (before.text, row.text))), before.calls))
        else:
            call = data.typed(row.call, tools.get(row.call.name))
            entries += [Past(before.text, (*before.calls, call)), Message(dialect.result_role, result_text(row.result))]
    return entries


def result_text(result: JSON) -> str:
    """The text of a result for a model: its output, as text or JSON, or the error."""
    if not isinstance(result, dict):
        return str(result)
    if result.get("exception") is not None:
        return json.dumps({"error": str(result["exception"])})
    output = result.get("output")
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False, default=str)
