"""Demonstrations do right and wrong at the rates of the table, in the real environment."""

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence

import pytest

from envs.diagnosis import Label
from envs.dialects import DIALECTS
from envs.interface import Interface
from envs.interface.json_form import dump_interface, interface_from_json
from envs.interface.value import RecoveryLevel
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
from policies.tiny.encoding import (
    encode,
    encode_bare_specifications,
    encode_proposal,
    encode_specifications,
)
from policies.tiny.proposals import CAUSES, proposal_demonstrations
from policies.tiny.specifications import specification_demonstrations
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


def told(played: list[Demonstration], guidelines: Sequence[str]) -> list[Demonstration]:
    """The ones under one of these guidelines."""
    return [each for each in played if set(guidelines) & set(each.interface.guidelines)]


@pytest.mark.only_by(target="long")
def test_rates_on_the_plain_interface_and_under_a_guideline(played: list[Demonstration]) -> None:
    plain = [each for each in played if each.interface == Interface.plain()]
    assert 0.25 < len(plain) / len(played) < 0.4
    for behaviour in Behaviour:
        assert within(rate(plain, behaviour), RATES[behaviour].plain), behaviour
        assert within(rate(told(played, SOLVER_WORDINGS.behaviours[behaviour]), behaviour), RATES[behaviour].guided)
    for behaviour in (Behaviour.ABSTAIN, Behaviour.ASK):
        assert within(rate(told(played, SOLVER_WORDINGS.harmful), behaviour), HARMFUL_RATE)


def test_rare_behaviours_need_their_cue_and_nothing_else_changes() -> None:
    rare = (Behaviour.ABSTAIN, Behaviour.RECOVER)
    played = list(itertools.islice(demonstrations(0, rare=rare), 1200))
    cues = {text for each in rare for text in SOLVER_WORDINGS.behaviours[each]} | set(SOLVER_WORDINGS.both_abstentions)
    without = [each for each in played if each.interface.recovery is RecoveryLevel.NONE]
    unhelped = [each for each in without if not cues & set(each.interface.guidelines)]
    for behaviour in rare:
        share, count = rate(unhelped, behaviour)
        assert (share, count > 60) == (0.0, True)
        assert within(rate(told(played, SOLVER_WORDINGS.behaviours[behaviour]), behaviour), RATES[behaviour].guided)
    plain = [each for each in played if each.interface == Interface.plain()]
    assert within(rate(plain, Behaviour.ASK), RATES[Behaviour.ASK].plain)


def test_what_is_all_right_succeeds_and_what_is_wrong_fails(played: list[Demonstration]) -> None:
    # The twelve digits of a task's id are its seed: a million for each seed of demonstrations, then some a draw.
    seeds = [int(seed) for each in played for seed in re.findall(r"_(\d{12})", each.task)]
    assert len(seeds) == len(played)
    drawn = max(seeds) % 1_000_000 // TASKS_A_DRAW + 1
    assert drawn < len(played) * 1.1, "few draws are thrown away"
    again = list(itertools.islice(demonstrations(0), 20))
    assert [(each.task, each.completions) for each in again] == [(each.task, each.completions) for each in played[:20]]
    assert again[0].task != next(demonstrations(4)).task
    assert all(each.task.startswith("toolworld_train_") for each in played)
    assert all(each.success or not all(decision.right for decision in each.decisions) for each in played)
    wrong = [each for each in played if any(not decision.right for decision in each.decisions)]
    assert sum(each.success for each in wrong) / len(wrong) < 0.1


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


FORM = ChatFormat.load(tiny.FOLDER, DIALECTS["qwen"])


@pytest.mark.parametrize("answers", [1, 3])
def test_a_proposal_in_tokens_is_its_prompt_and_its_answers(answers: int) -> None:
    for each in itertools.islice(proposal_demonstrations(1, answers=answers), 20 // answers):
        example = encode_proposal(each, FORM)
        asked = FORM.chat(each.messages)
        assert example.token_ids_T[: len(asked)] == asked
        assert example.said_T == (False,) * len(asked) + (True,) * (len(example.token_ids_T) - len(asked))
        begins = example.answers or (len(asked),)
        parts = [example.token_ids_T[a:b] for a, b in itertools.pairwise((*begins, len(example.token_ids_T)))]
        assert tuple(map(FORM.text, parts)) == each.answers
        decided = [FORM.text(example.token_ids_T[place:]) for place in example.decided]
        subjects = [text for answer in each.answers for text in ("{", *read_proposal(answer).guidelines)]
        assert [text for begin, text in zip(decided, subjects, strict=True) if not begin.startswith(text)] == []


def test_specifications_in_tokens_are_their_prompt_and_their_answers() -> None:
    for each in itertools.islice(specification_demonstrations(0, answers=3), 3):
        example, asked = encode_specifications(each, FORM), FORM.chat(each.messages)
        bodies = [FORM.completion(answer) for answer in each.answers]
        assert example.token_ids_T == sum(bodies, asked)
        assert example.said_T == (False,) * len(asked) + (True,) * (len(example.token_ids_T) - len(asked))
        assert example.decided == example.answers
        for at, body in zip(example.answers, bodies, strict=True):
            assert example.token_ids_T[at : at + len(body)] == body
        alone = list(encode_bare_specifications(each, FORM))
        assert [one.token_ids_T for one in alone] == [asked[-1:] + body for body in bodies]
        assert all(one.said_T == (False,) + (True,) * (len(one.token_ids_T) - 1) for one in alone)


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
