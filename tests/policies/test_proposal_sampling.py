"""Documents that fill the context: they are accepted or rejected for what they are, with their sample."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from envs.dialogue import Message
from policies import tiny
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.proposal_sampling import ProposalSampler, Writing
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


def sampled(prompt: int, tokens: list[int], most: int = 0, **settings: Any) -> tuple[Proposal[str], int]:
    """A document whose prompt has that many tokens and room for `most` examples, and the length of what was read."""
    folder = open_model(tiny.NAME)
    form: Any = Prompt(ChatFormat.load(folder.path, folder.dialect), prompt)
    said = [form.stop_token_ids[0] if token < 0 else token for token in tokens]
    writing = Writing(context=CONTEXT, max_tokens=MOST, retries=0, **settings)
    engine = ScriptedEngine(lambda _: said, context=CONTEXT)
    sampler = ProposalSampler(lambda: engine, form, writing, "base", "document", {}, str, check=lambda _: None)
    examples = [Message("user", "")] * most
    (document,) = asyncio.run(sampler.sample(lambda shown: examples[:shown], most, n=1, seed=1))
    return document, len(engine.requests[0].prompt_ids) if engine.requests else 0


@pytest.mark.parametrize("constrained", [False, True])
def test_one_that_fills_the_context_is_accepted_and_one_without_end_is_a_sample_too(constrained: bool) -> None:
    free = int(constrained)  # scoring what a grammar held needs a token more
    whole, _ = sampled(CONTEXT - 8 - free, [7] * 7 + [-1], constrained=constrained)
    assert whole.value is not None
    endless, _ = sampled(CONTEXT - 8 - free, [7] * 20, constrained=constrained)
    assert (endless.value, endless.rejection) == (None, "document: it did not end within 8 tokens.")
    assert None not in (whole.sample, endless.sample)
    short, _ = sampled(CONTEXT - 2 * MOST, [7] * 20, constrained=constrained)
    assert short.rejection == f"document: it did not end within {MOST} tokens."
    full, _ = sampled(CONTEXT - free, [7], constrained=constrained)
    assert full == Proposal(None, f"document: its prompt of {CONTEXT - free} tokens leaves it no room.")


@pytest.mark.parametrize(("room", "shown"), [(9, 4), (4, 4), (2, 2), (0, 0), (-5, 0)])
def test_a_prompt_shows_as_many_examples_as_have_room(room: int, shown: int) -> None:
    _, length = sampled(CONTEXT - MOST - room, [-1], most=4, constrained=False)
    assert length == CONTEXT - MOST - room + shown
