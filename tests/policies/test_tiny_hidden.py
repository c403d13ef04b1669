"""The demonstrations of tiny-hidden do right and wrong at their rates, and the model follows guidelines about tools."""

import asyncio
import itertools
import re
from collections.abc import Mapping

import pytest

from envs.hidden_conventions import CODE, DEMONSTRATION_SETS, SETS, tool_set
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
    PROPOSALS,
    TOOL,
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


def test_a_plan_has_a_code_only_where_a_guideline_states_it(played: list[Demonstration]) -> None:
    obeyed: list[bool] = []
    for demonstration in played:
        text = " ".join(demonstration.interface.guidelines)
        for completion in demonstration.completions[::2]:
            argument, word = split_plan(completion)[0].split()
            stated = re.search(rf"\b{argument} ({CODE.pattern})", text)
            assert word == BARE or (stated is not None and stated[1] == word)
            obeyed += [] if stated is None else [word != BARE]
    assert len(obeyed) > 500
    assert abs(sum(obeyed) / len(obeyed) - FULL_RATE) < 0.02


def test_names_of_runs_and_held_out_wordings_are_in_no_demonstration(played: list[Demonstration]) -> None:
    of_runs = {tool.name for number in range(SETS) for tool in tool_set(number)}
    shown = {tool.name for each in played for tool in each.tools}
    assert shown <= {tool.name for number in DEMONSTRATION_SETS for tool in tool_set(number)} - of_runs
    wordings = {text for kind in (FULL, TOOL, "general") for text in WORDINGS[kind]}
    assert not wordings & {text for some in WORDINGS["held_out"].values() for text in some}
    assert not wordings & {*GUIDELINE_FOR.values(), *IDLE.guidelines}


def share_that_helps(count: int, mixture: str) -> float:
    """Share of the proposals that state a code that fails in their profile behind its argument."""
    helped = 0
    for each in itertools.islice(hidden_proposals(0, mixture), count):
        profile = each.messages[1].content.partition("Success since")[0]
        stated = [text for text in read_proposal(each.answers[0]).guidelines if CODE.search(text)]
        pairs = [found[0] for text in stated if (found := re.search(rf"\w+ {CODE.pattern}", text))]
        assert len(pairs) == len(stated)
        helped += any(f" {pair}: " in profile for pair in pairs)
    return helped / count


def test_proposals_hardly_ever_state_what_the_profile_reveals() -> None:
    assert share_that_helps(100, "reading") > 0.5
    assert 0.02 < share_that_helps(500, "rare") < 0.08
    assert [sum(kinds.values()) for kinds in PROPOSALS.values()] == pytest.approx([1] * 2)


def test_a_guideline_helps_if_it_states_a_code_behind_its_argument() -> None:
    tool, other = tool_set(0)[:2]
    helpful = (f"Give {tool.argument} {tool.code}.", f"For {other.name} take {tool.argument} {tool.code}.")
    useless = (f"Give {tool.argument} {other.code}.", f"Give {tool.code}.", f"Give {tool.name} {tool.code}.")
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
