"""BFCL V4's memory categories as an exam: conversations that fill a memory, then questions that only it can answer.

For each of five stories and two backends, key-value and one text (`rec_sum`), a model leads some conversations, one
after the other, each beginning with what the one before left in its memory. Then each question begins with what the
last one left, and its final answer is graded as the official checker does: an expected answer must stand in it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import BaseModel

from envs.bfcl.agentic import converse, is_answer, tools_in
from envs.bfcl.memory import BACKENDS, Memory, Opens
from envs.bfcl.tools import data_folder, read_rows
from envs.bfcl.vectors import Embed, MemoryAPI_vector
from envs.errors import UserError
from envs.exams import Candidate, Mark
from envs.task import JSON, ToolCall, ToolDoc


class MemoryExam:
    """155 questions for each backend, and the 37 conversations before them. Questions of a story share its memory."""

    name = "bfcl-v4-memory"
    about = "questions that a memory of earlier conversations answers"

    def __init__(self, backends: Mapping[str, Opens] = BACKENDS) -> None:
        # Constants alone; the module imports nothing.
        from bfcl_eval.constants import default_prompts

        folder = data_folder()
        answers = {
            row["id"]: row["ground_truth"] for row in read_rows(folder / "possible_answer" / "BFCL_v4_memory.json")
        }
        questions = read_rows(folder / "BFCL_v4_memory.json")
        self._items: list[MemorySession] = []
        for backend, opens in backends.items():
            tools = tools_in(folder / "multi_turn_func_doc" / f"memory_{backend}.json")
            unified = default_prompts.MEMORY_BACKEND_INSTRUCTION_UNIFIED
            instruction = unified if backend == "rec_sum" else default_prompts.MEMORY_BACKEND_INSTRUCTION_CORE_ARCHIVAL
            for story, role in default_prompts.MEMORY_AGENT_SETTINGS.items():
                last = None
                for row in read_rows(folder / "memory_prereq_conversation" / f"memory_{story}.json"):
                    found = MemorySession(backend, opens, story, row, tools, instruction, role, after=last)
                    self._items.append(found)
                    last = found.id
                self._items += [
                    MemorySession(
                        backend,
                        opens,
                        story,
                        row,
                        tools,
                        instruction,
                        role,
                        after=last,
                        answers=tuple(answers[row["id"]]),
                        form=default_prompts.ADDITIONAL_SYSTEM_PROMPT_FOR_AGENTIC_RESPONSE_FORMAT,
                    )
                    for row in questions
                    if row["scenario"] == story
                ]

    def items(self) -> Sequence[MemorySession]:
        return self._items

    def notes(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        pass


class VectorMemoryExam(MemoryExam):
    """The same questions on memories that are searched by meaning. The vectors' model is the caller's."""

    name = "bfcl-v4-memory-vector"
    about = "questions that a memory of earlier conversations answers, which is searched by meaning"

    class Settings(BaseModel, extra="forbid"):
        embeddings: Embed | None = None

    def __init__(self, settings: Settings) -> None:
        if settings.embeddings is None:
            raise UserError(
                f"{self.name} needs a model that makes vectors of texts: --embeddings FOLDER, or a hub's name; the "
                "benchmark's is sentence-transformers/all-MiniLM-L6-v2."
            )
        super().__init__({"vector": partial(MemoryAPI_vector, embed=settings.embeddings)})


@dataclass(frozen=True, slots=True, eq=False)
class MemorySession:
    """One conversation: of those that fill the memory, or, with `answers`, a question."""

    backend: str
    opens: Opens = field(repr=False)
    story: str
    entry: Mapping[str, Any]
    tools: tuple[ToolDoc, ...] = field(repr=False)
    instruction: str = field(repr=False)
    role: str = field(repr=False)
    after: str | None = None
    answers: tuple[str, ...] = ()
    form: str = ""

    @property
    def id(self) -> str:
        return str(self.entry["id"]).replace("memory", f"memory_{self.backend}", 1)

    @property
    def category(self) -> str:
        return self.backend

    @property
    def group(self) -> str:
        return self.story

    @property
    def counts(self) -> bool:
        return bool(self.answers)

    def system(self, snapshot: Mapping[str, JSON] | None) -> str:
        """The system message, which shows what of the memory is always in sight."""
        shown = self.instruction.format(scenario_setting=self.role, memory_content=_in_sight(self.backend, snapshot))
        return f"{shown}\n\n{self.form}" if self.form else shown

    async def sit(self, candidate: Candidate, before: JSON) -> Mark:
        memory = Memory(self.opens(before), [tool.name for tool in self.tools])

        async def execute(call: ToolCall) -> str:
            return memory.execute(call).text

        said, end = await converse(candidate, self.tools, self.system(before), self.entry["question"], execute)
        if not self.counts:
            return Mark(False, end, kept=memory.snapshot())
        if said is None:
            return Mark(False, end)
        right = is_answer(said, self.answers)
        return Mark(right, "" if right else "the answer is not in it")


def _in_sight(backend: str, snapshot: Mapping[str, JSON] | None) -> str:
    if backend == "rec_sum":
        return (snapshot and snapshot["memory"]) or "There is no content in the memory at this point."
    if backend == "vector":
        return json.dumps(snapshot["core_memory"]["store"] if snapshot else {}, indent=4)
    core = snapshot["core_memory"] if snapshot else {}
    return json.dumps(core, indent=4) if core else "There is no content in the core memory at this point."
