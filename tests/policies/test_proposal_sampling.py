"""Documents that fill the context: they are accepted or rejected for what they are, with their sample."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from envs.dialogue import Message
from policies import tiny
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.proposal_sampling import ProposalSampler, Writing, both_ends
from policies.proposer import Proposal
from tests.policies.scripted_engine import ScriptedEngine

CONTEXT = 64
MOST = 16


class Prompt:
    """A chat format whose prompts are of a given length."""

    def __init__(self, form: ChatFormat, tokens: int) -> None:
        self.prompt = (5,) * tokens
        self.stop_token_ids, self.text = form.stop_token_ids, form.text

    def chat(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return self.prompt + (5,) * len(messages)


def written(prompt: int, tokens: list[int], *, constrained: bool) -> Proposal[str]:
    folder = open_model(tiny.NAME)
    form: Any = Prompt(ChatFormat.load(folder.path, folder.dialect), prompt)
    stop = form.stop_token_ids[0]
    said = [stop if token < 0 else token for token in tokens]
    writing = Writing(context=CONTEXT, max_tokens=MOST, constrained=constrained, retries=0)
    engine = ScriptedEngine(lambda _: said, context=CONTEXT)
    sampler = ProposalSampler(lambda: engine, form, writing, "base", "document", {}, str, check=lambda _: None)
    (document,) = asyncio.run(sampler.sample(lambda _: (), 0, n=1, seed=1))
    return document


@pytest.mark.parametrize("constrained", [False, True])
def test_one_that_fills_the_context_is_accepted_and_one_without_end_is_a_sample_too(constrained: bool) -> None:
    free = int(constrained)  # scoring what a grammar held needs a token more
    whole = written(CONTEXT - 8 - free, [7] * 7 + [-1], constrained=constrained)
    assert whole.value is not None
    assert whole.sample is not None
    endless = written(CONTEXT - 8 - free, [7] * 20, constrained=constrained)
    assert (endless.value, endless.rejection) == (None, "document: it did not end within 8 tokens.")
    assert endless.sample is not None
    short = written(CONTEXT - 2 * MOST, [7] * 20, constrained=constrained)
    assert short.rejection == f"document: it did not end within {MOST} tokens."


@pytest.mark.parametrize("constrained", [False, True])
def test_a_prompt_that_leaves_no_room_is_rejected(constrained: bool) -> None:
    found = written(CONTEXT - int(constrained), [7], constrained=constrained)
    assert found == Proposal(None, f"document: its prompt of {CONTEXT - constrained} tokens leaves it no room.")


def test_a_prompt_shows_as_many_examples_as_have_room() -> None:
    folder = open_model(tiny.NAME)
    for room, shown in ((9, 4), (4, 4), (2, 2), (0, 0), (-5, 0)):
        form: Any = Prompt(ChatFormat.load(folder.path, folder.dialect), CONTEXT - MOST - room)
        writing = Writing(context=CONTEXT, max_tokens=MOST, constrained=False, retries=0)
        engine = ScriptedEngine(lambda _, stop=form.stop_token_ids[0]: [stop], context=CONTEXT)  # type: ignore[misc]
        sampler = ProposalSampler(lambda: engine, form, writing, "base", "document", {}, str, check=lambda _: None)  # noqa: B023
        asyncio.run(sampler.sample(lambda most: [Message("user", "")] * most, 4, n=1, seed=1))
        assert len(engine.requests[0].prompt_ids) == CONTEXT - MOST - room + shown


def test_both_ends_of_a_list() -> None:
    assert [both_ends("abcdef", most) for most in (9, 4, 3, 1, 0)] == [
        list(text) for text in ("abcdef", "abef", "abf", "a", "")
    ]
