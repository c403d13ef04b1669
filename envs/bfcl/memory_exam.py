"""BFCL V4's memory categories as an exam: conversations that fill a memory, then questions about them.

For each of five stories and each backend, a model leads some conversations in order; each starts with the memory of the
one before. Each question starts with the memory of the last one. As in the official checker, the final answer must
contain an expected one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pydantic import BaseModel

from envs.bfcl.agentic import converse, graded, tools_in
from envs.bfcl.memory_tools import BACKENDS, Memory, OpenMemory
from envs.bfcl.tools import data_folder, read_entries, read_rows
from envs.bfcl.vectors import Embed, vector_memory
from envs.errors import UserError
from envs.exams import Candidate, Exam, Mark
from envs.task import JSON, ToolCall, ToolDoc


class MemoryExam(Exam):
    """155 questions for each backend, and the 37 conversations before them. Questions of a story share its memory."""

    name = "bfcl-v4-memory"
    about = "questions that a memory of earlier conversations answers"

    def __init__(self, backends: Mapping[str, OpenMemory] = BACKENDS) -> None:
        # This module has constants only.
        from bfcl_eval.constants import default_prompts as prompts

        folder, form = data_folder(), prompts.ADDITIONAL_SYSTEM_PROMPT_FOR_AGENTIC_RESPONSE_FORMAT
        questions = read_entries("memory")
        self._items: list[MemorySession] = []
        for name, opens in backends.items():
            kind = "UNIFIED" if name == "rec_sum" else "CORE_ARCHIVAL"
            tools = tools_in(folder / "multi_turn_func_doc" / f"memory_{name}.json")
            backend = Backend(name, opens, tools, getattr(prompts, f"MEMORY_BACKEND_INSTRUCTION_{kind}"))
            for story, role in prompts.MEMORY_AGENT_SETTINGS.items():
                last = None
                for row in read_rows(folder / "memory_prereq_conversation" / f"memory_{story}.json"):
                    self._items.append(MemorySession(backend, story, row, role, last))
                    last = self._items[-1].id
                self._items += [
                    MemorySession(backend, story, row, role, last, tuple(answers), form)
                    for row, answers in questions
                    if row["scenario"] == story
                ]

    def items(self) -> Sequence[MemorySession]:
        return self._items


class VectorMemoryExam(MemoryExam):
    """The same questions on memories that are searched by meaning, with vectors of a model that the caller gives."""

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
        super().__init__({"vector": partial(vector_memory, embed=settings.embeddings)})


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """A kind of memory: how it is opened, its tools, and the system message that explains it."""

    name: str
    opens: OpenMemory
    tools: tuple[ToolDoc, ...]
    instruction: str


@dataclass(frozen=True, slots=True, eq=False)
class MemorySession:
    """One conversation: a preparation that fills the memory, or, with `answers`, a question."""

    backend: Backend = field(repr=False)
    story: str
    entry: Mapping[str, Any]
    role: str = field(repr=False)
    after: str | None = None
    answers: tuple[str, ...] = ()
    form: str = ""

    @property
    def id(self) -> str:
        return str(self.entry["id"]).replace("memory", f"memory_{self.backend.name}", 1)

    @property
    def category(self) -> str:
        return self.backend.name

    @property
    def group(self) -> str:
        return self.story

    @property
    def counts(self) -> bool:
        return bool(self.answers)

    def system(self, snapshot: Mapping[str, JSON] | None) -> str:
        """The system message, with the part of the memory that is always shown."""
        content = _always_shown(self.backend.name, snapshot)
        shown = self.backend.instruction.format(scenario_setting=self.role, memory_content=content)
        return f"{shown}\n\n{self.form}" if self.form else shown

    async def sit(self, candidate: Candidate, before: JSON) -> Mark:
        tools = self.backend.tools
        memory = Memory(self.backend.opens(before), [tool.name for tool in tools])

        async def execute(call: ToolCall) -> str:
            return memory.execute(call).text

        said, end = await converse(candidate, tools, self.system(before), self.entry["question"], execute)
        if not self.counts:
            return Mark(False, end, kept=memory.snapshot())
        return graded(said, end, self.answers)


def _always_shown(backend: str, snapshot: Mapping[str, JSON] | None) -> str:
    if backend == "rec_sum":
        return (snapshot and snapshot["memory"]) or "There is no content in the memory at this point."
    if backend == "vector":
        return json.dumps(snapshot["core_memory"]["store"] if snapshot else {}, indent=4)
    core = snapshot["core_memory"] if snapshot else {}
    return json.dumps(core, indent=4) if core else "There is no content in the core memory at this point."
