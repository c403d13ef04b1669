"""Demonstrations do right and wrong at the rates of the table, in the real environment."""

import itertools
import math
import re
from collections import Counter

import pytest

from envs.diagnosis import Label
from envs.dialects import DIALECTS
from envs.interface import Interface
from envs.interface.json_form import dump_interface, interface_from_json
from envs.interface.value import RecoveryLevel
from envs.toolworld.generation import task_from_id
from policies import tiny
from policies.curator.proposal_text import read_proposal
from policies.prompting import ChatFormat
from policies.tiny.behaviours import (
    CURATOR_WORDINGS,
    HARMFUL_RATE,
    RATES,
    SOLVER_WORDINGS,
    Behaviour,
)
from policies.tiny.demonstrations import TASKS_A_DRAW, Demonstration, demonstrations, split_plan
from policies.tiny.encoding import encode, encode_proposal
from policies.tiny.proposals import CAUSES, proposal_demonstrations
from policies.tiny.training import Recipe, tokenizer_for


@pytest.fixture(scope="module")
def played() -> list[Demonstration]:
    return list(itertools.islice(demonstrations(0), 1500))


def rate(played: list[Demonstration], behaviour: Behaviour) -> tuple[float, int]:
    right = [decision.right for each in played for decision in each.decisions if decision.behaviour is behaviour]
    return sum(right) / max(1, len(right)), len(right)


def within(found: tuple[float, int], wanted: float) -> bool:
    """Within four standard errors."""
    share, count = found
    return abs(share - wanted) <= 4 * math.sqrt(wanted * (1 - wanted) / count)


@pytest.mark.parametrize("behaviour", Behaviour)
def test_rates_on_the_plain_interface_and_under_a_guideline(behaviour: Behaviour, played: list[Demonstration]) -> None:
    plain = [each for each in played if each.interface == Interface.plain()]
    assert 0.25 < len(plain) / len(played) < 0.4
    assert within(rate(plain, behaviour), RATES[behaviour].plain)
    guided = [each for each in played if set(SOLVER_WORDINGS.behaviours[behaviour]) & set(each.interface.guidelines)]
    assert within(rate(guided, behaviour), RATES[behaviour].guided)


def test_rare_behaviours_need_their_cue_and_nothing_else_changes() -> None:
    rare = (Behaviour.ABSTAIN, Behaviour.RECOVER)
    played = list(itertools.islice(demonstrations(0, rare=rare), 1200))
    cues = {text for each in rare for text in SOLVER_WORDINGS.behaviours[each]} | set(SOLVER_WORDINGS.both_abstentions)
    without = [each for each in played if each.interface.recovery is RecoveryLevel.NONE]
    unhelped = [each for each in without if not cues & set(each.interface.guidelines)]
    for behaviour in rare:
        share, count = rate(unhelped, behaviour)
        assert (share, count > 60) == (0.0, True)
        guided = [
            each for each in played if set(SOLVER_WORDINGS.behaviours[behaviour]) & set(each.interface.guidelines)
        ]
        assert within(rate(guided, behaviour), RATES[behaviour].guided)
    plain = [each for each in played if each.interface == Interface.plain()]
    assert within(rate(plain, Behaviour.ASK), RATES[Behaviour.ASK].plain)


def test_harmful_guidelines_make_abstaining_and_asking_rare(played: list[Demonstration]) -> None:
    harmed = [each for each in played if set(SOLVER_WORDINGS.harmful) & set(each.interface.guidelines)]
    for behaviour in (Behaviour.ABSTAIN, Behaviour.ASK):
        assert within(rate(harmed, behaviour), HARMFUL_RATE)


def test_what_is_all_right_succeeds_and_what_is_wrong_fails(played: list[Demonstration]) -> None:
    for each in played:
        assert task_from_id(each.task).id.startswith("toolworld_train_")
        assert each.success or not all(decision.right for decision in each.decisions)
    wrong = [each for each in played if any(not decision.right for decision in each.decisions)]
    assert sum(each.success for each in wrong) / len(wrong) < 0.1


def test_few_draws_are_thrown_away() -> None:
    # The twelve digits of a task's id are its seed: a million for each seed of demonstrations, then some a draw.
    seeds = [re.search(r"_(\d{12})", each.task) for each in itertools.islice(demonstrations(0), 500)]
    drawn = [int(seed[1]) for seed in seeds if seed is not None]
    assert len(drawn) == 500
    assert (max(drawn) % 1_000_000 // TASKS_A_DRAW + 1) < 500 * 1.1


def test_a_request_begins_with_a_true_plan(played: list[Demonstration]) -> None:
    listed = Counter[bool]()
    for each in played:
        shown = {tool.name for tool in each.tools}
        for completion, answer in zip(each.completions, each.answers, strict=True):
            plan, rest = split_plan(completion)
            assert plan + rest == completion
            words = plan.split()
            for name, says in zip(words[::2], words[1::2], strict=True):
                assert says == ("yes" if name in shown else "no")
                listed[says == "yes"] += 1
            shown |= {tool.name for message in answer for tool in message.tools}
    assert listed[True] > 250
    assert listed[False] > 25


def test_proposals_can_be_read_and_mostly_advise_against_what_fails() -> None:
    found = list(itertools.islice(proposal_demonstrations(0), 200))
    assert found == list(itertools.islice(proposal_demonstrations(0), 200))
    fitting = Counter[bool]()
    for each in found:
        asked = each.messages[-1].content
        labels = re.findall(r"^- (\w+): \d+ turns", asked.partition("By label:")[2].partition("By turn")[0], re.M)
        first = next((label for label in labels if label in set(CAUSES)), None)
        advice = read_proposal(each.answers[0]).guidelines
        assert advice
        if first is not None:
            wanted = {text for behaviour in CAUSES[Label(first)] for text in CURATOR_WORDINGS.behaviours[behaviour]}
            fitting[bool((wanted | set(CURATOR_WORDINGS.both_abstentions)) & set(advice))] += 1
    assert 0.5 < fitting[True] / fitting.total() < 0.95
    assert len({each.answers for each in found}) > 100


@pytest.mark.parametrize("answers", [1, 3])
def test_a_proposal_in_tokens_is_its_prompt_and_its_answers(answers: int) -> None:
    form = ChatFormat.load(tiny.FOLDER, DIALECTS["qwen"])
    for each in itertools.islice(proposal_demonstrations(1, answers=answers), 20 // answers):
        example = encode_proposal(each, form)
        asked = form.chat(each.messages)
        assert example.token_ids_T[: len(asked)] == asked
        assert example.said_T == (False,) * len(asked) + (True,) * (len(example.token_ids_T) - len(asked))
        begins = example.answers or (len(asked),)
        parts = [example.token_ids_T[a:b] for a, b in itertools.pairwise((*begins, len(example.token_ids_T)))]
        assert tuple(map(form.text, parts)) == each.answers
        decided = [form.text(example.token_ids_T[place:]) for place in example.decided]
        subjects = [text for answer in each.answers for text in ("{", *read_proposal(answer).guidelines)]
        assert [text for begin, text in zip(decided, subjects, strict=True) if not begin.startswith(text)] == []


def test_the_same_seed_gives_the_same_demonstrations() -> None:
    one, other = (list(itertools.islice(demonstrations(3), 20)) for _ in range(2))
    assert [(each.task, each.completions) for each in one] == [(each.task, each.completions) for each in other]
    assert [each.task for each in one] != [each.task for each in itertools.islice(demonstrations(4), 20)]


def test_every_guideline_may_be_shown() -> None:
    wordings = [*SOLVER_WORDINGS.all, *CURATOR_WORDINGS.all]
    assert len(set(wordings)) == len(wordings)
    for wording in wordings:
        shown = Interface(guidelines=(wording,))
        assert interface_from_json(dump_interface(shown)) == shown


def test_examples_mark_what_the_solver_says(played: list[Demonstration]) -> None:
    recipe = Recipe(tokenizer_demonstrations=300)
    form = ChatFormat(tokenizer_for(recipe), DIALECTS["qwen"], name="tiny")
    for each in played[:200]:
        example = encode(each, form)
        said = [token for token, mask in zip(example.token_ids_T, example.said_T, strict=True) if mask]
        assert tuple(said) == tuple(itertools.chain(*map(form.completion, each.completions)))
