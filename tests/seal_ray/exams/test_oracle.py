"""Models that are known to be right, or wrong at every third item, through prompts and tokens."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from envs.apibank.data import typed
from envs.apibank.exam import ApiBankExam, ApiCall
from envs.bfcl.single_turn import SingleTurnExam, SingleTurnItem
from envs.exams import EXAMS, Conversation, Exam, Item
from envs.task import ToolCall
from policies.candidate import conversation_prompt
from policies.engine.scripted import ScriptedEngine
from policies.solver import Budgets
from seal_ray.exams.report import exam_rows
from tests.bench.single_turn_parity import ground_truth, verdict
from tests.envs.apibank.folder import FOLDER, needs_data
from tests.seal_ray.exams.test_sitting import FORM, SITTER, sit

CONTEXT = 100_000
WIDE = replace(SITTER, budgets=Budgets(CONTEXT, 5_000, CONTEXT))


def share(exam: Exam, items: Sequence[Item], answers: Mapping[tuple[int, ...], str], folder: Path) -> tuple[int, int]:
    """How many items are right, of how many, where each prompt gets its answer."""

    engine = ScriptedEngine(lambda request: FORM.completion(answers[request.prompt_ids]), context=CONTEXT)
    done = sit(engine, folder, items, exam=exam, model=WIDE)
    row = exam_rows(exam.name, list(done.answers.values()))[-1]
    return round(row.model.share * row.items), row.items


def prompt(conversation: Conversation) -> tuple[int, ...]:
    return conversation_prompt(FORM, conversation)


def test_single_turn_questions(tmp_path: Path) -> None:
    exam: SingleTurnExam = EXAMS.make("bfcl-v3-single-turn")
    items: list[SingleTurnItem] = list(exam.items()[::40])
    right, flawed, expected = {}, {}, []
    for number, item in enumerate(items):
        calls = ground_truth(item, random.Random(0)) if item.answers is not None else []
        if item.category == "live_relevance":
            calls = [ToolCall("anything", {})]
        said = FORM.dialect.render_calls(calls) or "No function fits."
        asked = prompt(item.conversation())
        right[asked] = said
        flawed[asked] = FORM.dialect.render_calls([ToolCall("wrong", {})]) if number % 3 == 0 else said
        expected.append(item.answers is None or verdict(item, calls) is None)
    assert len(right) == len(items) == 92
    assert share(exam, items, right, tmp_path / "right") == (sum(expected), 92)
    assert sum(expected) >= 88
    kept = [known for number, known in enumerate(expected) if number % 3]
    also = sum(item.category == "live_relevance" for item in items[::3])
    assert share(exam, items, flawed, tmp_path / "flawed") == (sum(kept) + also, 92)
    exam.close()


@needs_data
def test_every_call_of_api_bank(tmp_path: Path) -> None:
    exam: ApiBankExam = EXAMS.make("api-bank", {"data": str(FOLDER)})
    items: list[ApiCall] = list(exam.items())
    answers = {}
    for item in items:
        call = typed(item.truth.call, exam.tools.get(item.truth.call.name))
        answers[prompt(item.conversation(FORM.dialect))] = FORM.dialect.render_calls([call])
    right, of = share(exam, items, answers, tmp_path)
    assert of == 508
    assert 480 <= right <= 484, "some dialogues begin alike, and one prompt has one answer"
    exam.close()
