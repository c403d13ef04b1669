"""Documents that fill the context: they are accepted or rejected for what they are, with their sample."""

from __future__ import annotations

import asyncio

import pytest

from policies import tiny
from policies.documents import Document, DocumentSampler, Writing
from policies.engine.scripted import ScriptedEngine
from policies.models import open_model
from policies.prompting import ChatFormat

CONTEXT = 64
MOST = 16


def written(monkeypatch: pytest.MonkeyPatch, prompt: int, tokens: list[int], *, constrained: bool) -> Document[str]:
    folder = open_model(tiny.NAME)
    form = ChatFormat.load(folder.path, folder.dialect)
    stop = form.stop_token_ids[0]
    said = [stop if token < 0 else token for token in tokens]

    writing = Writing(context=CONTEXT, max_tokens=MOST, constrained=constrained, retries=0)
    engine = ScriptedEngine(lambda _: said, context=CONTEXT)
    sampler: DocumentSampler[str] = DocumentSampler(lambda: engine, form, writing, "base", "document", {}, str)
    monkeypatch.setattr(ChatFormat, "chat", lambda *_: (5,) * prompt)
    (document,) = asyncio.run(sampler.sample(lambda _: (), 0, n=1, seed=1))
    return document


@pytest.mark.parametrize("constrained", [False, True])
def test_one_that_fills_the_context_is_accepted_and_one_without_end_is_a_sample_too(
    constrained: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = int(constrained)  # scoring what a grammar held needs a token more
    whole = written(monkeypatch, CONTEXT - 8 - free, [7] * 7 + [-1], constrained=constrained)
    assert whole.value is not None
    assert whole.sample is not None
    endless = written(monkeypatch, CONTEXT - 8 - free, [7] * 20, constrained=constrained)
    assert (endless.value, endless.rejection) == (None, "document: it did not end within 8 tokens.")
    assert endless.sample is not None
    short = written(monkeypatch, CONTEXT - 2 * MOST, [7] * 20, constrained=constrained)
    assert short.rejection == f"document: it did not end within {MOST} tokens."


@pytest.mark.parametrize("constrained", [False, True])
def test_a_prompt_that_leaves_no_room_is_said_to(constrained: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = written(monkeypatch, CONTEXT - int(constrained), [7], constrained=constrained)
    assert found == Document(None, f"document: its prompt of {CONTEXT - constrained} tokens leaves it no room.")
