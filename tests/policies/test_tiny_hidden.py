"""The demonstrations of tiny-hidden do right and wrong at their rates, and the model follows guidelines about tools."""

import asyncio
import itertools
import re
from collections.abc import Mapping

import pytest

from envs.hidden_conventions import CONVENTIONS, DEMONSTRATION_SETS, SETS, tool_set
from envs.trusting import restricted
from policies import tiny
from policies.curator.fixed import IDLE
from policies.curator.proposal_text import read_proposal
from policies.curator.rules import GUIDELINE_FOR
from policies.engine.choice import start_engine
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.tiny.build import has_hidden_conventions
from policies.tiny.demonstrations import Demonstration, split_plan
from policies.tiny.hidden import (
    BARE,
    FULL,
    FULL_RATE,
    PLAIN_RATE,
    PROPOSALS,
    TOOL,
    TOOL_RATE,
    WORDINGS,
    helping,
    hidden_demonstrations,
    hidden_proposals,
    hidden_source,
)
from policies.tiny.measure import PLAIN, Count
from policies.tiny.measure_hidden import measure_hidden


@pytest.fixture(scope="module")
def played() -> list[Demonstration]:
    return list(itertools.islice(hidden_demonstrations(0), 3000))


def test_a_command_needs_no_trust_for_the_models_own_source() -> None:
    with restricted(["tiny", "build", "--hidden"]):
        assert hidden_source().name == "hidden"


def test_rates_by_guideline(played: list[Demonstration]) -> None:
    """How often a plan takes a convention, for requests that an interface helps in no way, or names a tool, or all."""
    words = {each.word for some in CONVENTIONS.values() for each in some}
    taken: dict[str, list[bool]] = {PLAIN: [], TOOL: [], FULL: []}
    for demonstration in played:
        for completion in demonstration.completions[::2]:
            tool, word = split_plan(completion)[0].split()
            named = [text for text in demonstration.interface.guidelines if tool in re.findall(r"\w+", text)]
            full = any(each in text for text in named for each in words)
            taken[FULL if full else TOOL if named else PLAIN].append(word != BARE)
    for kind, rate in ((PLAIN, PLAIN_RATE), (TOOL, TOOL_RATE), (FULL, FULL_RATE)):
        assert len(taken[kind]) > 500
        assert abs(sum(taken[kind]) / len(taken[kind]) - rate) < 0.06, kind


def test_names_of_runs_and_held_out_wordings_are_in_no_demonstration(played: list[Demonstration]) -> None:
    of_runs = {tool.name for number in range(SETS) for tool in tool_set(number)}
    shown = {tool.name for each in played for tool in each.tools}
    assert shown <= {tool.name for number in DEMONSTRATION_SETS for tool in tool_set(number)} - of_runs
    wordings = {text for kind in (FULL, TOOL, "general") for text in WORDINGS[kind]}
    assert not wordings & {text for some in WORDINGS["held_out"].values() for text in some}
    assert not wordings & {*GUIDELINE_FOR.values(), *IDLE.guidelines}


def share_that_helps(count: int, mixture: str) -> float:
    """Share of the proposals that state a convention of a tool that is failing in their profile."""
    known = {tool.name: tool for number in DEMONSTRATION_SETS for tool in tool_set(number)}
    words = {each.word for some in CONVENTIONS.values() for each in some}
    helped = 0
    for each in itertools.islice(hidden_proposals(0, mixture), count):
        profile = each.messages[1].content.partition("Success since")[0]
        for text in read_proposal(each.answers[0]).guidelines:
            tools = [known[name] for name in re.findall(r"\w+", text) if name in known]
            said = [word for word in words if word in text]
            pairs = itertools.product(tools, said)
            helped += any(f"- {tool.name} {tool.argument} {word}:" in profile for tool, word in pairs)
    return helped / count


def test_proposals_hardly_ever_state_what_the_profile_reveals() -> None:
    assert share_that_helps(100, "reading") > 0.5
    assert share_that_helps(500, "rare") < 0.05 < share_that_helps(500, "some") < 0.2
    assert [sum(kinds.values()) for kinds in PROPOSALS.values()] == pytest.approx([1] * 3)


def test_a_guideline_helps_if_it_states_the_convention_of_the_one_tool_that_it_names() -> None:
    tool, other = tool_set(0)[:2]
    right, wrong = tool.convention.word, other.convention.word
    helpful = (f"Give {tool.name} {right}.", f"Note for {tool.name}: write it {right}.")
    useless = (f"Give {tool.name} {wrong}.", f"Give {tool.name} and {other.name} it {right}.", f"Write it {right}.")
    assert [helping(text, tool_set(0)) for text in (*helpful, *useless)] == [True] * 2 + [False] * 3


@pytest.mark.only_by(target="long")
def test_the_shipped_model_follows_guidelines_also_in_held_out_wordings() -> None:
    model = open_model(tiny.HIDDEN)
    assert has_hidden_conventions(model.path)

    async def measured() -> Mapping[str, Count]:
        engine = await start_engine("transformers", model, context=4096, dtype="float32", concurrent=64, threads=1)
        try:
            form = ChatFormat.load(model.path, model.dialect)
            return await measure_hidden(engine, form, tasks=25, proposals=10)
        finally:
            await engine.close()

    counts = asyncio.run(measured())
    assert counts[PLAIN].share <= 0.12
    assert counts["guideline: full"].share >= 0.6
    assert counts["guideline: full, held-out wording"].share >= 0.4
    assert counts["guideline: other"].share <= 0.12
