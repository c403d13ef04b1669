"""What BFCL V4's agentic categories share: the loop of calls and results, and how a final answer is graded."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from envs.allowance import Allowance
from envs.bfcl.tools import PYTHON_HINT, read_rows
from envs.dialogue import MAX_STEPS, Message
from envs.exams import Candidate, Conversation, Entry, calls_of
from envs.task import ToolCall, ToolDoc

MAX_CALLS = 100
"""Calls of one answer that are executed, where they cost next to nothing."""
MAX_CONTEXT = 32_768
"""Tokens of context that results are cut for."""

_IGNORED = re.compile(r"[,./\-_*^()]")


async def converse(
    candidate: Candidate,
    tools: tuple[ToolDoc, ...],
    system: str,
    turns: Sequence[Sequence[Mapping[str, str]]],
    execute: Callable[[ToolCall], Awaitable[str]],
    *,
    calls_at_once: int = MAX_CALLS,
) -> tuple[str | None, str]:
    """The last thing that was said without a call, or None and what ended the conversation before.

    `execute` gives the result of a call. What it raises ends the conversation and is passed on. Of one answer
    `calls_at_once` calls are executed; the others are left out, and get no result.
    """
    entries: list[Entry] = [Message("system", system)]
    allowance = Allowance(MAX_CONTEXT)
    last = None
    for turn in turns:
        entries += [Message(message["role"], message["content"]) for message in turn]
        for step in range(MAX_STEPS + 2):
            if step > MAX_STEPS:
                return None, "too many steps"
            said = await candidate.answer(Conversation(tools, tuple(entries)))
            entries.append(said)
            if said.end != "stop":
                return None, "cut off"
            calls = calls_of(candidate.dialect, said)
            if not calls:
                last = candidate.dialect.spoken(said.text)
                break
            for call in calls[:calls_at_once]:
                entries.append(Message(candidate.dialect.result_role, allowance.show(await execute(call))))
    return last, ""


def is_answer(said: str, answers: Sequence[str]) -> bool:
    """Whether one of the expected answers stands in what was said, as words, without case and some punctuation."""
    plain = _plain(said)
    return any(re.search(rf"\b{re.escape(_plain(answer))}\b", plain) for answer in answers)


def _plain(text: str) -> str:
    return _IGNORED.sub("", text).lower().replace("'", '"')


def tools_in(path: Path) -> tuple[ToolDoc, ...]:
    """The tools of a file of documents, as the official loader shows them."""
    return tuple(
        ToolDoc(each["name"], "", {**each, "description": each["description"] + PYTHON_HINT}, ())
        for each in read_rows(path)
    )
