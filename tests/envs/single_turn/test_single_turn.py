"""BFCL's single-turn questions: what is shown, how answers are graded, and what hostile ones can do."""

import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from envs.bfcl.single_turn import CATEGORIES, SingleTurnExam, SingleTurnItem
from envs.dialects import DIALECTS
from envs.dialogue import Message
from envs.exams import EXAMS, Mark
from envs.task import JSON, ToolCall
from tests.bench.single_turn_parity import Official, compared, ground_truth, verdict
from tests.envs.players import mark


@pytest.fixture(scope="module")
def exam() -> Iterator[SingleTurnExam]:
    found = EXAMS.make("bfcl-v3-single-turn", {"data": None})
    yield found
    found.close()


def one(exam: SingleTurnExam, category: str, place: int = 0) -> SingleTurnItem:
    return [question for question in exam.items() if question.category == category][place]


def test_all_entries_are_there_and_those_with_calls_have_answers(exam: SingleTurnExam) -> None:
    counts = Counter(question.category for question in exam.items())
    assert list(counts) == list(CATEGORIES)
    assert len(exam.items()) == len({question.id for question in exam.items()}) == 3641
    without = {question.category for question in exam.items() if question.answers is None}
    assert without == {"irrelevance", "live_irrelevance", "live_relevance"}


def test_verdicts_are_the_official_ones(exam: SingleTurnExam) -> None:
    found = list(compared(exam, 1))
    assert [each for each in found if not each.alike] == []
    truths = [each for each in found if each.kind == "ground truth"]
    assert len(truths) == 2501
    assert len(found) - len(truths) > 2000
    assert sum(each.ours is None for each in truths) > 2400, "some data contradicts its own schema"
    assert 500 < sum(each.ours is None for each in found if each.kind != "ground truth") < 2000


def test_what_is_shown_is_what_the_official_handlers_show(exam: SingleTurnExam) -> None:
    questions: dict[str, list[SingleTurnItem]] = {category: [] for category in CATEGORIES}
    for question in exam.items():
        questions[question.category].append(question)
    with Official() as official:
        for category, mine in questions.items():
            for row, question in zip(official.ask(load=category), mine, strict=True):
                shown = question.conversation()
                assert row["id"] == question.id
                assert [dict(tool.document) for tool in shown.tools] == row["function"]
                said = [entry.content for entry in shown.entries if isinstance(entry, Message)]
                assert said == [each["content"] for each in row["question"][0] if each["role"] != "assistant"]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_answers_become_marks_in_every_dialect(exam: SingleTurnExam, dialect: str) -> None:
    write = DIALECTS[dialect].render_calls
    for category in ("simple_python", "multiple", "parallel", "parallel_multiple", "live_simple", "simple_java"):
        question = one(exam, category, 3)
        calls = ground_truth(question, random.Random(0))
        assert mark(question, write(calls), dialect) == Mark(True), category
        assert not mark(question, write(calls * 2), dialect).right
        assert mark(question, write(calls), dialect, end="response") == Mark(False, "cut off")
        assert not mark(question, "I cannot do that.", dialect).right
    none, some = one(exam, "irrelevance"), one(exam, "live_relevance")
    call = write([ToolCall("anything", {})])
    assert [mark(none, "No function fits.", dialect).right, mark(none, call, dialect).right] == [True, False]
    assert [mark(some, "No function fits.", dialect).right, mark(some, call, dialect).right] == [False, True]
    assert not mark(none, "No func", dialect, end="response").right


def test_quoted_arguments_and_thoughts_are_no_calls_here_as_officially(exam: SingleTurnExam) -> None:
    question, none = one(exam, "simple_python"), one(exam, "irrelevance")
    (call,) = ground_truth(question, random.Random(0))
    said = DIALECTS["qwen"].render_calls([call])
    quoted = json.dumps({"name": call.name, "arguments": json.dumps(dict(call.arguments))})
    assert mark(question, said, "qwen").right
    for text in (f"<tool_call>\n{quoted}\n</tool_call>", f"<think>\n{said}\n</think>\n\nI cannot do that."):
        assert not mark(question, text, "qwen").right
        assert mark(none, text, "qwen").right
    nameless = '<tool_call>\n{"name": null, "arguments": {}}\n</tool_call>'
    assert not mark(none, nameless, "qwen").right


HOSTILE: list[JSON] = [
    *("__import__('os').system('touch hacked')", "\ud83d", "\x00", "{}", "{{" * 900, "[" * 1900, "x" * 4001),
    "new ArrayList<>() {{" + " " * 1900,
    "new HashMap<" + "<" * 900 + ">" * 900,
    'new HashMap<>() {{ put("' * 80,
    "9" * 4000,
    "1e400",
    [[]] * 5,
    *(None, True, -1, 1 << 4000, float("nan"), float("inf"), {"a": {"b": []}}, [{"a": 1}], [None], {"": ""}),
]


@pytest.mark.parametrize("category", ["simple_python", "simple_java", "simple_javascript", "live_multiple"])
def test_hostile_values_are_wrong_and_quickly_so(exam: SingleTurnExam, category: str) -> None:
    questions = [question for question in exam.items() if question.category == category][:10]
    for question, value in itertools.product(questions, HOSTILE):
        (call, *_) = ground_truth(question, random.Random(0))
        if call.arguments:
            started = time.process_time()
            assert verdict(question, [ToolCall(call.name, dict.fromkeys(call.arguments, value))]) is not None
            assert time.process_time() - started < 1


def test_a_pattern_that_takes_for_ever_is_ended(exam: SingleTurnExam) -> None:
    question = next(
        question
        for question in exam.items()
        if question.category == "simple_javascript"
        and any(each["type"] == "array" for each in question.entry["function"][0]["parameters"]["properties"].values())
    )
    properties = question.entry["function"][0]["parameters"]["properties"]
    name = next(name for name, each in properties.items() if each["type"] == "array")
    (truth,) = ground_truth(question, random.Random(0))
    endless = ToolCall(truth.name, {**truth.arguments, name: "[[" + "],[" * 60})
    assert verdict(question, [endless]) == "the values take too long to read"
    assert verdict(question, [truth]) is None, "the next answer gets a new process"


def test_what_cannot_be_compared_is_wrong(exam: SingleTurnExam) -> None:
    schema = {"type": "dict", "properties": {"a": {"type": "nonsense"}, "b": {"type": "array"}}, "required": []}
    entry = {"function": [{"name": "f", "parameters": schema}]}
    for arguments in ({"a": 1}, {"b": [1]}, {"c": 1}):
        item = SingleTurnItem(exam, "simple_python", entry, [{"f": {key: [1] for key in arguments}}])
        assert verdict(item, [ToolCall("f", arguments)]) is not None
