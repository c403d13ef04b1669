"""Resumable exams: no item is sampled twice, a dying engine costs no answer, and a dead one gives no score."""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from envs.errors import SealError, UserError
from envs.exams import Candidate, Exam, Item, Mark
from envs.task import JSON
from policies.engine import GenRequest
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.solver import Budgets
from seal_ray.exams.exam_run import Answer, AnswerLog, ExamProgress, ExamRun, ModelUnderTest, choose_items
from tests.policies.scripted_engine import ScriptedEngine
from tests.seal_ray.exams.arithmetic import Arithmetic, Sum

MODEL = open_model("tiny")
FORM = ChatFormat.load(MODEL.path, MODEL.dialect)
SITTER = ModelUnderTest(MODEL, FORM, Budgets(1000, 20, 2000), "transformers", "float32", concurrent=4)
EXAM = Arithmetic(Arithmetic.Settings())


def adds(wrong: Sequence[str] = ()) -> Callable[[GenRequest], Sequence[int]]:
    """Adds the numbers of the prompt, but says nothing to prompts with one of these words."""

    def answer(request: GenRequest) -> Sequence[int]:
        asked = FORM.text(request.prompt_ids).rpartition("Add")[2]
        numbers = [int(each) for each in re.findall(r"\d+", asked.replace(" ", "").replace("and", " "))]
        return FORM.completion("" if any(word in asked for word in wrong) else str(sum(numbers)))

    return answer


def sit(
    engine: ScriptedEngine,
    folder: Path,
    items: Sequence[Item] | None = None,
    *,
    exam: Exam = EXAM,
    model: ModelUnderTest = SITTER,
) -> ExamProgress:
    log = AnswerLog(folder, {"model": "x"})
    log.open()
    items = exam.items() if items is None else items
    return asyncio.run(ExamRun(exam, items, model, engine, log, lambda _: None).finish())


def test_every_item_is_asked_and_kept_and_sees_what_it_comes_after(tmp_path: Path) -> None:
    engine = ScriptedEngine(adds())
    done = sit(engine, tmp_path)
    assert all(answer.right for answer in done.answers.values())
    assert len(engine.requests) == 14
    rows = AnswerLog(tmp_path, {"model": "x"}).lines.rows()
    assert {row["item"] for row in rows} == {item.id for item in EXAM.items()}
    then = next(row for row in rows if row["item"] == "then")
    assert then["said"] == ["14"]
    assert Answer.from_dict(then).sampled_tokens > 0


def test_nothing_is_asked_twice_and_a_cut_line_is_asked_again(tmp_path: Path) -> None:
    first = sit(ScriptedEngine(adds()), tmp_path, EXAM.items()[:5])
    again = ScriptedEngine(adds())
    assert sit(again, tmp_path, EXAM.items()[:5]).answers == first.answers
    assert again.requests == []
    lines = tmp_path / "answers.jsonl"
    lines.write_bytes(lines.read_bytes()[:-20])
    more = ScriptedEngine(adds())
    assert len(sit(more, tmp_path).answers) == 14
    assert len(more.requests) == 14 - 4


def test_an_engine_that_dies_is_restarted_and_costs_no_answer(tmp_path: Path) -> None:
    whole = sit(ScriptedEngine(adds()), tmp_path / "whole")
    engine = ScriptedEngine(adds())
    engine.die_after(6)
    done = sit(engine, tmp_path / "died")
    assert engine.restarts == done.restarts == 1
    assert done.answers == whole.answers
    assert len(AnswerLog(tmp_path / "died", {"model": "x"}).lines.rows()) == 14


def test_an_engine_that_keeps_dying_is_a_sentence_and_an_exam_that_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedEngine(adds())
    engine.die_after(6)

    async def in_vain(self: ScriptedEngine) -> None:
        self.restarts += 1

    monkeypatch.setattr(ScriptedEngine, "restart", in_vain)
    sentence = r"^arithmetic: the engine died again .* item; \d of 14 items are kept and no score was written; the same"
    with pytest.raises(SealError, match=sentence):
        sit(engine, tmp_path)
    kept = AnswerLog(tmp_path, {"model": "x"}).answers()
    assert 0 < len(kept) < 14
    later = ScriptedEngine(adds())
    assert len(sit(later, tmp_path).answers) == 14
    assert len(later.requests) == 14 - len(kept)


def test_answers_of_another_model_are_not_mixed_in(tmp_path: Path) -> None:
    sit(ScriptedEngine(adds()), tmp_path, EXAM.items()[:2])
    with pytest.raises(UserError, match="holds another exam; give another folder, or --fresh to replace it"):
        AnswerLog(tmp_path, {"model": "y"})
    fresh = AnswerLog(tmp_path, {"model": "y"}, fresh=True)
    assert len(fresh.lines.rows()) == 2, "nothing is thrown away before it is opened"
    fresh.open()
    assert fresh.answers() == {}
    (tmp_path / "answers.jsonl").write_text('{"item": "x"}\n')
    with pytest.raises(UserError, match="holds a line of no exam \\('category'\\)"):
        fresh.answers()


def test_a_limit_takes_all_kinds_and_a_larger_one_goes_on(tmp_path: Path) -> None:
    items = EXAM.items()
    few, more = choose_items(items, limit=3), choose_items(items, limit=7)
    assert {item.category for item in few} == {"small", "large", "story"}
    assert [item.id for item in few if item.category == "story"] == ["first", "then"]
    assert {item.id for item in few} < {item.id for item in more}
    assert sum(item.counts for item in more) == 7
    assert [item.id for item in more] == [item.id for item in items if item in more]
    assert {item.category for item in choose_items(items, categories=["large"])} == {"large"}
    assert len(choose_items(items)) == 14


@dataclass(frozen=True)
class Odd(Sum):
    """A sum whose judgement quotes half a surrogate pair."""

    async def sit(self, candidate: Candidate, before: JSON) -> Mark:
        await Sum.sit(self, candidate, before)
        return Mark(False, "called '\ud83d'", kept={"\ud83d": 1})


def test_whatever_is_kept_is_valid_text(tmp_path: Path) -> None:
    done = sit(ScriptedEngine(adds()), tmp_path, [Odd("odd", "c", "g", 1, 2)])
    assert done.answers["odd"].why == "called '\ufffd'"
    assert AnswerLog(tmp_path, {"model": "x"}).answers() == done.answers
