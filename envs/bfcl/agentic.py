"""The dialogue loop and the grading of final answers in BFCL V4's agentic categories."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

from envs.allowance import Allowance
from envs.bfcl.tools import read_rows, with_python_hint
from envs.dialogue import MAX_STEPS, Message
from envs.exams import Candidate, Conversation, Entry, Mark, calls_of
from envs.task import ToolCall, ToolDoc

MAX_CALLS = 100
"""Calls of one answer that are executed by default."""
MAX_CONTEXT = 32_768
"""Context that results are cut to, in tokens."""


async def converse(
    candidate: Candidate,
    tools: tuple[ToolDoc, ...],
    system: str,
    turns: Sequence[Sequence[Mapping[str, str]]],
    execute: Callable[[ToolCall], Awaitable[str]],
    *,
    calls_at_once: int = MAX_CALLS,
) -> tuple[str | None, str]:
    """The last answer without a call, or None and the reason why the conversation ended before one.

    `execute` returns the result of a call; its exceptions are passed on. Calls of one answer beyond `calls_at_once`
    get no result.
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


def graded(said: str | None, end: str, answers: Sequence[str]) -> Mark:
    """The mark of a conversation's last answer."""
    if said is None:
        return Mark(False, end)
    right = is_answer(said, answers)
    return Mark(right, "" if right else "the answer is not in it")


def is_answer(said: str, answers: Sequence[str]) -> bool:
    """Whether the text contains one of the expected answers as words, as the official checker sees it."""
    from bfcl_eval.eval_checker.agentic_eval.agentic_checker import agentic_checker

    return bool(agentic_checker(said, list(answers))["valid"])


def tools_in(path: Path) -> tuple[ToolDoc, ...]:
    """The tools in a file of documents, as the official loader shows them."""
    return tuple(with_python_hint(ToolDoc(row["name"], "", row, ())) for row in read_rows(path))
