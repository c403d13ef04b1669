"""BFCL's memory of vectors: as the official one, call by call; found by meaning; hostile calls."""

import json
import time
from pathlib import Path

import pytest

from envs.bfcl.memory_exam import VectorMemoryExam
from envs.bfcl.memory_tools import Memory
from envs.bfcl.vectors import vector_memory
from envs.errors import UserError
from envs.exams import EXAMS
from envs.task import JSON, ToolCall
from policies.embedding import Embedder
from tests.bench.memory_parity import Official, replayed
from tests.policies.tiny_encoder import make_encoder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def embed(encoder: Path) -> Embedder:
    return Embedder(str(encoder))


@pytest.fixture(scope="module")
def exam(embed: Embedder) -> VectorMemoryExam:
    found: VectorMemoryExam = EXAMS.make("bfcl-v4-memory-vector", {"data": None, "embeddings": embed})
    return found


def memory_of(exam: VectorMemoryExam, before: dict[str, JSON] | None = None) -> Memory:
    first = exam.items()[0]
    return Memory(first.backend.opens(before), [tool.name for tool in first.backend.tools])


def test_results_and_memories_are_the_official_ones(exam: VectorMemoryExam, encoder: Path) -> None:
    found = list(replayed(exam, 8, str(encoder)))
    assert [each for each in found if each.ours != each.official] == []
    assert sum("similarity_score" in each.ours for each in found) > 50
    assert sum(each.what not in ("system", "left") for each in found) > 300


def test_items_are_what_the_official_loader_gives(exam: VectorMemoryExam) -> None:
    items = {item.id: item for item in exam.items()}
    assert len(items) == 155 + 37
    with Official() as official:
        for row in official.ask(load="memory_vector"):
            item = items[row["id"]]
            assert item.after == (row["depends_on"][-1] if row["depends_on"] else None)
            assert [dict(tool.document) for tool in item.backend.tools] == row["function"]


def test_what_was_stored_is_found_by_its_own_words_also_in_the_next_conversation(exam: VectorMemoryExam) -> None:
    memory = memory_of(exam)
    texts = ["the customer lives in seattle", "coffee", "michael is the name"]
    for text in texts:
        memory.execute(ToolCall("core_memory_add", {"text": text}))
    memory.execute(ToolCall("core_memory_remove", {"vec_id": 0}))
    memory.execute(ToolCall("core_memory_update", {"vec_id": 1, "new_text": "fact about coffee"}))
    left = json.loads(json.dumps(memory.snapshot()))
    assert left["core_memory"] == {"next_id": 3, "store": {"1": "fact about coffee", "2": "michael is the name"}}
    after = memory_of(exam, left)
    asked = ToolCall("core_memory_retrieve", {"query": "michael is the name", "top_k": 1})
    (found,) = json.loads(after.execute(asked).text)["result"]
    assert (found["id"], found["text"]) == (2, "michael is the name")
    assert found["similarity_score"] == pytest.approx(1, abs=1e-5)
    assert '"1": "fact about coffee"' in exam.items()[1].system(left)
    assert json.loads(after.execute(ToolCall("core_memory_add", {"text": "x"})).text) == {"id": 3}


HOSTILE = [
    ToolCall("_snapshot", {}),
    ToolCall("__class__", {}),
    ToolCall("core_memory_add", {"text": "x", "embed": "os.system"}),
    ToolCall("core_memory_add", {"text": ["a", "b"]}),
    ToolCall("core_memory_add", {"text": {"a": "b"}}),
    ToolCall("core_memory_retrieve", {"query": 5}),
    ToolCall("core_memory_retrieve", {"query": "a", "top_k": 10**400}),
    ToolCall("core_memory_retrieve", {"query": "a", "top_k": 0}),
    ToolCall("core_memory_update", {"vec_id": 0, "new_text": "\ud83d"}),
    ToolCall("core_memory_update", {"vec_id": [], "new_text": "a"}),
    ToolCall("core_memory_update", {"vec_id": float("nan"), "new_text": "a"}),
    ToolCall("archival_memory_retrieve", {"query": "a " * 50_000}),
    ToolCall("archival_memory_add", {"text": "x" * 2_000}),
]


def test_hostile_calls_are_results_and_a_memory_stays_small(exam: VectorMemoryExam) -> None:
    memory = memory_of(exam)
    memory.execute(ToolCall("core_memory_add", {"text": "coffee"}))
    started = time.process_time()
    results = [memory.execute(call) for call in HOSTILE * 5]
    assert time.process_time() - started < 10
    fine = {6, 11, 12}  # a bound that is large, a query that is long, an entry as long as can be
    assert [place for place, result in enumerate(results[: len(HOSTILE)]) if not result.is_error] == sorted(fine)
    for _ in range(60):
        memory.execute(HOSTILE[-1])
    assert len(json.dumps(memory.snapshot())) < 57 * 2_100
    again = memory_of(exam, json.loads(json.dumps(memory.snapshot())))
    assert again.snapshot() == memory.snapshot()


def test_without_a_model_the_suite_says_what_it_needs(embed: Embedder) -> None:
    with pytest.raises(UserError, match="--embeddings FOLDER"):
        EXAMS.make("bfcl-v4-memory-vector", {"data": None, "embeddings": None})
    assert Memory(vector_memory(None, embed), ()).snapshot()["core_memory"] == {"next_id": 0, "store": {}}
