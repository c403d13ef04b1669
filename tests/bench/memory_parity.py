"""Our memories and marks against the official ones, on replayed conversations of random calls and on answers.

    python -m tests.bench.memory_parity [N]

N pairs of conversations a backend, 60 by default, of which the second begins with what the first one left. The search
for keys is compared where the package `rank_bm25` is installed. Vectors are those of a small random model; the official
memory computes them with `sentence-transformers` and searches them with `faiss`, where these are installed.
"""

import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.bfcl.agentic import is_answer
from envs.bfcl.memory_exam import MemoryExam, VectorMemoryExam
from envs.bfcl.memory_tools import Memory
from envs.task import ToolCall
from policies.embedding import Embedder
from tests.bench import single_turn_parity as single_turn
from tests.envs.official import as_source
from tests.policies.tiny_encoder import WORDS, make_encoder

KEYS = [
    *("name", "first_name", "home_city", "city", "a", "a_1", "Name", "first name", "_x", "x_", "größe", "", "x1", "2x")
]
TEXTS = [
    *("Michael", "35", "lives in Seattle", "x" * 299, "x" * 301, "y" * 1999, "y" * 2001, "", "'\"\\", "é\n", "z" * 6000)
]
QUERIES = ["name", "first name city", "home_city", "CITY city", "nothing", "", "a"]
ODD: list[Any] = [None, 1, True, 2.5, ["name"], {"name": 1}, -1]

KNOWN_ODD: dict[str, list[Any]] = {"text": [None, 1, -1], "new_text": [True, 2.5], "query": [""]}
"""Arguments of vectors for which a text is needed: the official memory takes a list of one text, and what it says to
other values that have a length, and to queries, are a tokenizer's words."""


class Official(single_turn.Official):
    """The official memories, running."""

    module = "tests.bench.memory_official"


def random_call(backend: str, tools: Sequence[str], rng: random.Random) -> ToolCall:
    """A call that is mostly possible."""
    name = rng.choice(tools)
    arguments: dict[str, Any] = {}
    if backend == "vector":
        name = rng.choice([name] + [tool for tool in tools if tool.endswith(("_add", "_retrieve"))])
        arguments = _vector_arguments(name, rng)
    elif "search" in name:
        arguments = {"query": rng.choice(QUERIES)} | (
            {"k": rng.choice([1, 3, 0, -1, 100])} if rng.random() < 0.5 else {}
        )
    elif name == "memory_replace":
        arguments = {"old_text": rng.choice(TEXTS)[:7] or "x", "new_text": rng.choice(TEXTS)[:300]}
    elif name in ("memory_append", "memory_update"):
        arguments = {"text": rng.choice(TEXTS)}
    elif name.endswith(("add", "replace")):
        key = rng.choice(KEYS[:5]) if rng.random() < 0.7 else rng.choice(KEYS)
        arguments = {"key": f"{key}_{rng.randrange(60)}" if rng.random() < 0.3 else key, "value": rng.choice(TEXTS)}
    elif name.endswith(("remove", "retrieve")) and name != "memory_retrieve":
        arguments = {"key": rng.choice(KEYS)}
    chance = rng.random()
    if chance < 0.05 and arguments:
        key = rng.choice(sorted(arguments))
        arguments[key] = rng.choice(KNOWN_ODD.get(key, ODD) if backend == "vector" else ODD)
    elif chance < 0.08:
        arguments["more"] = 1
    elif chance < 0.11 and arguments:
        del arguments[rng.choice(sorted(arguments))]
    elif chance < 0.12:
        name = rng.choice(["nothing", "remember", "memory"])
    return ToolCall(name, arguments)


def _vector_arguments(name: str, rng: random.Random) -> dict[str, Any]:
    text = f"{rng.choice(WORDS)} {rng.choice(WORDS)} {rng.randrange(10**6)} {rng.choice(TEXTS)}"
    number = rng.choice([*range(8), 60, True, 1.0])
    if name.endswith("add"):
        return {"text": text}
    if name.endswith("update"):
        return {"vec_id": number, "new_text": text}
    if name.endswith("remove"):
        return {"vec_id": number}
    if name.endswith("retrieve"):
        return {"query": text[:100]} | ({"top_k": rng.choice([1, 3, 0, -1, 100])} if rng.random() < 0.5 else {})
    return {}


@dataclass(frozen=True)
class Replayed:
    """One call of a conversation, or what is shown at its begin and left at its end."""

    what: str
    ours: Any
    official: Any
    limited: bool = False
    """Whether a text has grown beyond `MAX_TEXT` by then: that call, and what follows it, may differ."""


def replayed(exam: MemoryExam, pairs: int, encoder: str = "") -> Iterator[Replayed]:
    """Calls on both memories, conversation by conversation. `encoder` is the model folder of vectors."""
    with Official() as official:
        searches = official.ask(search=encoder)
        for backend in dict.fromkeys(item.category for item in exam.items()):
            first, second = [item for item in exam.items() if item.category == backend][:2]
            tools = [tool.name for tool in first.backend.tools if searches or "search" not in tool.name]
            for number in range(pairs):
                rng = random.Random(f"{backend} {number}")
                snapshot, limited = None, False
                for session in (first, second):
                    calls = [random_call(backend, tools, rng) for _ in range(rng.choice([3, 12, 80]))]
                    memory = Memory(first.backend.opens(snapshot), [tool.name for tool in first.backend.tools])
                    results = [memory.execute(call).text for call in calls]
                    theirs = official.ask(
                        backend=backend,
                        id=session.id,
                        run=f"run{number}",
                        scenario=session.story,
                        calls=[as_source(call) for call in calls],
                    )
                    yield Replayed("system", session.system(snapshot), theirs["system"], limited)
                    if encoder:
                        results, theirs["results"] = (list(map(rounded, each)) for each in (results, theirs["results"]))
                    for call, mine, other in zip(calls, results, theirs["results"], strict=True):
                        limited |= "the memory would have more than" in mine
                        yield Replayed(str(call)[:100], mine, other, limited)
                    snapshot = json.loads(json.dumps(memory.snapshot()))
                    yield Replayed("left", snapshot, theirs["left"], limited)


def rounded(result: str) -> str:
    """A result with its scores to four places: sums in float32 depend on their order."""
    return re.sub(r'(?<="similarity_score": )-?[\d.e-]+', lambda found: f"{float(found[0]):.4f}", result)


def graded(exam: MemoryExam) -> Iterator[Replayed]:
    """Answers to every question, right and wrong ones, graded by both."""
    with Official() as official:
        questions = [item for item in exam.items() if item.counts and item.category == "kv"]
        for number, question in enumerate(questions):
            rng = random.Random(number)
            answer, other = rng.choice(question.answers), rng.choice(rng.choice(questions).answers)
            for said in (
                answer,
                f"{{'answer': '{answer}', 'context': 'You told me.'}}",
                f"It is {answer.upper()}.",
                f"{answer}s",
                f"x{answer}",
                answer.replace(" ", "-"),
                "_".join(answer),
                answer[:-1],
                " ".join(reversed(answer.split())),
                f"I do not know, {other}?",
                f"({answer})*",
                "",
                "{'answer': 'I do not know', 'context': 'I do not know'}",
            ):
                yield Replayed(
                    said, is_answer(said, question.answers), official.ask(said=said, answers=question.answers)
                )


def main() -> None:
    exam, pairs = MemoryExam(), int(sys.argv[1]) if len(sys.argv) > 1 else 60
    found = list(replayed(exam, pairs))
    with tempfile.TemporaryDirectory() as folder:
        encoder = str(make_encoder(Path(folder)))
        vectors = VectorMemoryExam(VectorMemoryExam.Settings(embeddings=Embedder(encoder)))
        found += replayed(vectors, pairs, encoder)
    unlike = [each for each in found if each.ours != each.official]
    kinds = Counter("calls" if each.what not in ("system", "left") else each.what for each in found)
    known = sum(each.limited for each in unlike)
    print(f"{dict(kinds)}: {len(unlike)} differ, {known} of them behind a text that grew beyond the limit")
    for each in [each for each in unlike if not each.limited][:10]:
        print(each.what, str(each.ours)[:300], str(each.official)[:300], sep="\n    ")
    marks = list(graded(exam))
    print(f"{len(marks)} answers, {sum(each.ours for each in marks)} right: ", end="")
    print(f"{sum(each.ours != each.official for each in marks)} differ")


if __name__ == "__main__":
    main()
