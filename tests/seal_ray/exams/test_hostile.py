"""Hostile answers in every suite: nothing escapes, nothing is written, no item takes long, all is valid text."""

import asyncio
import json
import random
import time
from pathlib import Path

import pytest

from envs.bfcl.web_search import ADDRESS, KEY
from envs.dialects import DIALECTS, Dialect
from envs.exams import EXAMS, Conversation, Exam, Item, Said
from envs.task import ToolCall
from envs.text import map_texts, valid_text
from policies.embedding import Embedder
from seal_ray.exams.exam_run import choose_items
from tests.bench.hostile_states import VALUES
from tests.envs.apibank.fake import write_folder
from tests.envs.web_search.stand_in import running
from tests.fuzz.attacks import EXPRESSIONS, written
from tests.fuzz.pieces import FRAGMENTS
from tests.policies.tiny_encoder import make_encoder

ANSWERS = 12
"""Answers of a candidate; after them it is silent, so that every item ends."""


class Hostile:
    """Says what it should not, a function of the seed."""

    def __init__(self, seed: int, dialect: Dialect) -> None:
        self.dialect = dialect
        self._rng = random.Random(seed)
        self.said: list[str] = []

    async def answer(self, conversation: Conversation) -> Said:
        text = "Done." if len(self.said) >= ANSWERS else self._text(conversation)
        self.said.append(text)
        return Said(text, end=self._rng.choice(("stop",) * 9 + ("response",)))

    def _text(self, conversation: Conversation) -> str:
        rng = self._rng
        match rng.randrange(5):
            case 0:
                return "".join(rng.choice(FRAGMENTS) for _ in range(rng.randrange(20)))
            case 1:
                return rng.choice(list(written(self.dialect, rng.choice(EXPRESSIONS))))
            case 2:
                return self.dialect.render_calls([self._call(conversation)] * rng.choice((2, 50, 500)))[:99_000]
            case _:
                return self.dialect.render_calls([self._call(conversation) for _ in range(rng.randint(1, 3))])

    def _call(self, conversation: Conversation) -> ToolCall:
        """A tool that is shown, with some of its arguments, whose values are anything."""
        rng = self._rng
        tools = [tool.document for tool in conversation.tools]
        names = ("__init__", "os.system", "\ud83d", "")
        if not tools or rng.random() < 0.1:
            return ToolCall(rng.choice(names), {rng.choice(names): rng.choice(VALUES)})
        document = rng.choice(tools)
        arguments = [name for name in document["parameters"]["properties"] if rng.random() < 0.9]
        more = {rng.choice(("self", "__class__", "")): 1} if rng.random() < 0.1 else {}
        return ToolCall(document["name"], {name: rng.choice(VALUES) for name in arguments} | more)


def sit(item: Item, candidate: Hostile, slowest: float) -> None:
    started = time.process_time()
    mark = asyncio.run(item.sit(candidate, None))
    took = time.process_time() - started
    assert took < slowest * max(1, len(candidate.said)), (item.id, candidate.said[-1][:200])
    assert isinstance(mark.right, bool)
    json.dumps(map_texts([mark.why, mark.kept], valid_text), allow_nan=False).encode()
    assert len(mark.why) <= 400


@pytest.mark.parametrize("suite", EXAMS.built_in)
def test_no_answer_does_anything_but_count(suite: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = write_folder(tmp_path / "api-bank")
    here = tmp_path / "here"
    here.mkdir()
    embed = Embedder(str(make_encoder(tmp_path / "encoder")))
    monkeypatch.chdir(here)
    before = sorted(path for path in data.rglob("*"))
    with running() as service:
        monkeypatch.setenv(KEY, "a key")
        monkeypatch.setenv(ADDRESS, f"http://{service.host}/search")
        exam: Exam = EXAMS.make(suite, {"data": str(data), "embeddings": embed})
        items = choose_items(exam.items(), limit=60)[:60]
        for seed, item in enumerate(items * max(1, 60 // len(items))):
            sit(item, Hostile(seed, list(DIALECTS.values())[seed % len(DIALECTS)]), slowest=2)
        exam.close()
    assert list(here.iterdir()) == []
    assert sorted(path for path in data.rglob("*")) == before
