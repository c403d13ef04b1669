"""BFCL's memories: as the official ones, call by call; conversations in a chain, questions at its end."""

import json
import math
import time
from collections import Counter

import pytest

from envs.bfcl.memory_exam import MemoryExam
from envs.bfcl.memory_tools import BACKENDS, MAX_TEXT, Memory
from envs.dialects import DIALECTS
from envs.dialogue import MAX_STEPS, Message
from envs.exams import EXAMS, Conversation, Mark
from envs.task import ToolCall
from tests.bench.memory_parity import Official, graded, replayed
from tests.envs.players import Scripted, mark, sit

QWEN = DIALECTS["qwen"]


@pytest.fixture(scope="module")
def exam() -> MemoryExam:
    found: MemoryExam = EXAMS.make("bfcl-v4-memory", {"data": None})
    return found


def tools_of(exam: MemoryExam, backend: str) -> list[str]:
    return [tool.name for tool in next(item for item in exam.items() if item.category == backend).backend.tools]


def test_results_and_memories_are_the_official_ones(exam: MemoryExam) -> None:
    found = list(replayed(exam, 15))
    assert [each for each in found if each.ours != each.official and not each.limited] == []
    assert sum(each.what not in ("system", "left") for each in found) > 1500
    assert sum(not each.limited for each in found) > 0.9 * len(found)


def test_marks_are_the_official_ones(exam: MemoryExam) -> None:
    found = list(graded(exam))
    assert [each for each in found if each.ours != each.official] == []
    assert len(found) > 1000
    assert 0.2 < sum(each.ours for each in found) / len(found) < 0.8


def test_the_search_for_keys_is_bm25_plus(exam: MemoryExam) -> None:
    """By hand: two keys of two words and one of one, a word that two of them have."""
    memory = Memory(BACKENDS["kv"](None), tools_of(exam, "kv"))
    for key in ("home_city", "city_name", "age"):
        assert memory.execute(ToolCall("core_memory_add", {"key": key, "value": "x"})).text == (
            '{"status": "Key-value pair added."}'
        )
    idf, mean = math.log(4 / 2), 5 / 3
    best = idf * (1 + 2.5 / (1.5 * (0.25 + 0.75 * 2 / mean) + 1))
    found = json.loads(memory.execute(ToolCall("core_memory_key_search", {"query": "the City"})).text)
    assert [key for _, key in found["ranked_results"]] == ["home_city", "city_name", "age"]
    assert [score for score, _ in found["ranked_results"]] == pytest.approx([best, best, idf])


def test_items_stand_behind_what_they_need_and_are_what_the_official_loader_gives(exam: MemoryExam) -> None:
    items = {item.id: item for item in exam.items()}
    kinds = {(backend, counts): 155 if counts else 37 for backend in BACKENDS for counts in (True, False)}
    assert Counter((item.category, item.counts) for item in items.values()) == kinds
    stories = {(item.id.replace(f"memory_{item.category}", "memory", 1), item.group) for item in items.values()}
    assert len(stories) == 155 + 37, "a question comes once for each backend"
    assert len({item.group for item in items.values()}) == 5
    with Official() as official:
        for row in (row for backend in BACKENDS for row in official.ask(load=f"memory_{backend}")):
            item = items[row["id"]]
            assert item.after == (row["depends_on"][-1] if row["depends_on"] else None)
            assert [dict(tool.document) for tool in item.backend.tools] == row["function"]
            first = row["question"][0][0]
            assert item.counts is (first["role"] == "system")
            assert not item.counts or item.system(None).endswith("\n\n" + first["content"])
    seen: set[str | None] = {None}
    for item in exam.items():
        assert item.after in seen
        seen.add(item.id)


def test_a_model_that_remembers_is_right_and_one_that_forgets_is_not(exam: MemoryExam) -> None:
    items = [item for item in exam.items() if (item.category, item.group) == ("kv", "customer")]
    first, question = items[0], next(item for item in items if item.counts)
    assert question.answers == ("Michael",)

    def remembers(conversation: Conversation) -> str:
        last = conversation.entries[-1]
        if isinstance(last, Message) and last.role == "user" and "My name is Michael" in last.content:
            return QWEN.render_calls([ToolCall("core_memory_add", {"key": "first_name", "value": "Michael"})])
        return "Noted."

    candidate = Scripted(remembers)
    kept = sit(first, candidate).kept
    assert kept == {"core_memory": {"first_name": "Michael"}, "archival_memory": {}}
    users = [entry for entry in candidate.asked[-1].entries if isinstance(entry, Message) and entry.role == "user"]
    assert len(users) == len(first.entry["question"])
    knows = Scripted("{'answer': 'Michael', 'context': 'You said so.'}")
    assert sit(question, knows, kept) == Mark(True)
    system = str(knows.asked[0].entries[0])
    assert '"first_name": "Michael"' in system
    assert "respond in this format" in system
    assert mark(question, "I do not know") == Mark(False, "the answer is not in it")
    asks = QWEN.render_calls([ToolCall("core_memory_retrieve", {"key": "first_name"})])
    looks = Scripted(lambda conversation: asks if len(conversation.entries) == 2 else str(conversation.entries[-1]))
    assert sit(question, looks, kept).right


def test_what_is_cut_off_or_never_ends_is_wrong_and_what_was_kept_is_kept(exam: MemoryExam) -> None:
    items = [item for item in exam.items() if (item.category, item.group) == ("rec_sum", "notetaker")]
    first, question = items[0], next(item for item in items if item.counts)
    writes = QWEN.render_calls([ToolCall("memory_append", {"text": "x"})])
    for item in (first, question):
        candidate = Scripted(writes)
        assert (found := sit(item, candidate)).why == "too many steps"
        assert not found.right
        assert len(candidate.asked) == MAX_STEPS + 1, "as there, one step more is executed"
    assert mark(first, writes).kept == {"memory": "x" * (MAX_STEPS + 1)}
    assert mark(question, str(question.answers[0]), end="response") == Mark(False, "cut off")


HOSTILE = [
    *(ToolCall("__init__", {"snapshot": None}), ToolCall("_snapshot", {}), ToolCall("__class__", {}), ToolCall("", {})),
    ToolCall("core_memory_add'); import os; os.system('touch hacked", {}),
    ToolCall("core_memory_add", {"self": 1, "key": "a", "value": "b"}),
    ToolCall("core_memory_add", {"key": "a" * 90_000, "value": {"a": [1] * 1000}}),
    ToolCall("core_memory_add", {"key": "a_" * 40_000, "value": ""}),
    ToolCall("core_memory_key_search", {"query": "a " * 40_000}),
    ToolCall("archival_memory_replace", {"key": ["a"], "value": float("nan")}),
    ToolCall("memory_append", {"text": "x" * 90_000}),
    ToolCall("memory_replace", {"old_text": "", "new_text": "y" * 10_000}),
    ToolCall("memory_replace", {"old_text": "y", "new_text": "y" * 10_000}),
    ToolCall("memory_update", {"text": "\ud83d\x00"}),
]


@pytest.mark.parametrize("backend", BACKENDS)
def test_hostile_calls_are_results_and_a_memory_stays_small(exam: MemoryExam, backend: str) -> None:
    memory = Memory(BACKENDS[backend](None), tools_of(exam, backend))
    started = time.process_time()
    for call in HOSTILE * 20:
        memory.execute(call)
        assert len(json.dumps(memory.snapshot())) < 7 * MAX_TEXT
    assert time.process_time() - started < 5
    assert all(memory.execute(call).is_error for call in HOSTILE[:6])


def test_an_answer_of_thousands_of_calls_is_bounded(exam: MemoryExam) -> None:
    first = next(item for item in exam.items() if (item.category, item.group) == ("rec_sum", "notetaker"))
    many = QWEN.render_calls([ToolCall("memory_retrieve", {})] * 1000)
    candidate = Scripted(lambda conversation: many if len(conversation.entries) < 4 else "Done.")
    started = time.process_time()
    sit(first, candidate, {"memory": "z" * MAX_TEXT})
    assert time.process_time() - started < 2
    shown = [entry for entry in candidate.asked[1].entries if isinstance(entry, Message) and entry.role == "tool"]
    assert len(shown) == 100
    assert sum(len(entry.content) for entry in shown) < 16 * 32_768 + 100 * 60
