"""Demonstrations: what a solver would have said, in the tokens of its own dialogues, and nothing from a test part."""

from functools import cache
from itertools import groupby

import pytest

from envs.sources import get_source
from envs.task import Task
from policies.demonstrations import DONE, NO_TOOL, WHICH, demonstrate
from policies.models import open_model
from policies.models.smollm2 import NAME as SMOLLM2
from policies.prompting import ChatFormat
from policies.trajectory import Sample

CONTEXT = 8192


@cache
def form(name: str = SMOLLM2) -> ChatFormat:
    model = open_model(name)
    return ChatFormat.load(model.path, model.dialect)


def tasks(source: str, part: str, count: int) -> list[Task]:
    found = get_source(source)
    pool = found.pool(part)
    return [found.task(pool.task_id(number)) for number in range(min(count, pool.size or count))]


def said(sample: Sample) -> list[str]:
    """The completions, in order."""
    return [form().text(span) for span in spans_of(sample)]


def spans_of(sample: Sample) -> list[list[int]]:
    """The runs of tokens that the solver said."""
    runs = groupby(zip(sample.token_ids_T, sample.mask_T, strict=True), key=lambda each: each[1])
    return [[token for token, _ in span] for mine, span in runs if mine]


@pytest.mark.parametrize("source", ["toolworld", "bfcl"])
def test_every_call_of_the_ground_truth_is_said_once_and_turns_end_in_a_sentence(source: str) -> None:
    for task in tasks(source, "train", 30):
        sample = demonstrate(task, form(), context=CONTEXT)
        assert sample is not None
        assert not sample.mask_T[0]
        parsed = [form().dialect.parse(text) for text in said(sample)]
        assert not any(each.errors for each in parsed)
        wanted_calls = [call for turn in task.turns for call in turn.ground_truth]
        assert [call for each in parsed for call in each.calls] == wanted_calls
        endings = [text for text, each in zip(said(sample), parsed, strict=True) if not each.calls]
        wanted = [bool(turn.ground_truth) for turn in task.turns]
        assert [text == DONE for text in endings] == wanted
        assert {text for text in endings if text != DONE} <= {NO_TOOL, WHICH}


def test_a_value_is_read_before_it_is_written() -> None:
    """A car is filled with the result of the conversion: two completions, not one."""
    task = get_source("toolworld").task("toolworld_train_base_000003")
    sample = demonstrate(task, form(), context=CONTEXT)
    assert sample is not None
    first, second, *_ = said(sample)
    assert "liter_to_gallon" in first
    assert "fillFuelTank" not in first
    assert "fillFuelTank" in second
    assert any(text.count("<tool_call>") > 1 for text in said(sample)), "what needs no result is said at once"


def test_one_that_is_too_long_is_none() -> None:
    (task,) = tasks("bfcl", "train", 1)
    sample = demonstrate(task, form(), context=CONTEXT)
    assert sample is not None
    length = len(sample.token_ids_T)
    assert demonstrate(task, form(), context=length) == sample
    assert demonstrate(task, form(), context=length - 1) is None


def test_the_tokens_are_those_of_a_dialogue() -> None:
    """A completion is tokenised as a whole with its stop token, and no text in another way."""
    tiny = form("tiny")
    for task in tasks("toolworld", "train", 5):
        sample = demonstrate(task, tiny, context=CONTEXT)
        assert sample is not None
        assert tiny.text(sample.token_ids_T).startswith("<|tools|>")
        spans = spans_of(sample)
        assert len(spans) > 1
        assert all(tiny.completion(tiny.text(tokens)) == (*tokens, stop) for *tokens, stop in spans)
        assert set(sample.sampled_logprobs_T) == {0.0}
