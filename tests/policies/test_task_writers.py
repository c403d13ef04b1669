"""Task writers: what they read and write, that hostile answers are rejected, and what the tiny base is shown."""

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import torch
from transformers import Qwen2ForCausalLM

from envs.diagnosis import Label
from envs.errors import UserError
from envs.specifications import Rejected, Specification, writable
from policies import tiny
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.proposal_sampling import Writing
from policies.proposer import Proposal, is_model
from policies.task_writer import Known, TaskWriter
from policies.task_writer.base import TASK_WRITERS
from policies.task_writer.llm import LLMTaskWriter, messages_for, most_informative
from policies.task_writer.shuffled import elsewhere
from policies.tiny import encoding
from policies.tiny.proposals import ProposalDemonstration
from policies.tiny.specifications import DEEPEST, specification_demonstrations
from tests.policies.scripted_engine import ScriptedEngine
from tests.policies.scripts import says, seen

MODEL = open_model(tiny.NAME)
FORM = ChatFormat.load(MODEL.path, MODEL.dialect)
VOCABULARY = int(MODEL.config["vocab_size"])
SOURCE = writable("toolworld")
GOOD = SOURCE.read('{"category": "base", "scenes": ["files"], "turns": [["files.show"]]}').dump()
PROFILE = seen(([Label.SPURIOUS_TOOL_CALL], 0.0))
STUCK = GOOD.replace("files.show", "files.go_up")


def check(specification: Specification) -> str | None:
    made = SOURCE.compose(specification, 0)
    return made.reason if isinstance(made, Rejected) else None


def write(
    writer: TaskWriter, *, n: int, seed: int = 3, known: Sequence[Known] = ()
) -> tuple[Proposal[Specification], ...]:
    return asyncio.run(writer.propose(PROFILE, known=known, n=n, seed=seed))


def make(kind: str, wanted: Callable[[Specification], str | None] = check, **settings: Any) -> TaskWriter:
    kind_class: Any = TASK_WRITERS.find(kind)
    made: TaskWriter = kind_class(SOURCE, wanted, **settings)
    return made


def llm(*texts: str, **settings: Any) -> tuple[LLMTaskWriter, ScriptedEngine]:
    answer = says(FORM, *texts)
    engine = ScriptedEngine(answer, context=4096, vocabulary=VOCABULARY, logprob=lambda _, token: -(token % 7) / 8)
    writing = Writing(**{"context": 4096, "max_tokens": 200, "constrained": False, "retries": 0, **settings})
    return LLMTaskWriter(lambda: engine, FORM, writing, source=SOURCE, check=check), engine


def test_a_source_with_fewer_specifications_than_are_asked_for_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [kind for kind in TASK_WRITERS.names() if is_model(TASK_WRITERS, kind)] == ["llm"]
    assert write(make("none"), n=3) == ()
    only = SOURCE.read(GOOD)
    monkeypatch.setattr(type(SOURCE), "draw", lambda *_, **__: only)
    first, second = write(make("random"), n=2)
    assert (first.value, first.rejection) == (only, None)
    assert second.rejection == "specification: it was written twice."


def test_it_reads_counts_the_grammar_and_success_by_specification_but_no_task() -> None:
    writer, engine = llm(GOOD, constrained=True)
    write(writer, n=1, known=[Known(SOURCE.read(GOOD), 0.25, 8.0)])
    (request,) = engine.requests
    text = FORM.text(request.prompt_ids)
    assert "- spurious_tool_call: 1 turns, success 0.0%" in text
    assert f"25% of 8 {GOOD}" in text
    assert "files: show, open_in" in text
    assert "a_task" not in text
    assert request.json_schema is not None
    for known in (GOOD, *(SOURCE.draw(random.Random(seed)).dump() for seed in range(100))):
        jsonschema.validate(json.loads(known), request.json_schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(GOOD), "ground_truth": []}, request.json_schema)


def test_what_cannot_be_read_or_composed_is_rejected_with_the_reason() -> None:
    texts = ("", "no", GOOD[:-3], GOOD.replace("base", "bas"), STUCK, "[" * 150, GOOD)
    writer, engine = llm(*texts)
    proposals = write(writer, n=len(texts))
    *rejected, accepted = [proposal.rejection for proposal in proposals]
    assert all(rejected)
    assert (accepted, proposals[-1].value) == (None, SOURCE.read(GOOD))
    assert rejected[0] == "specification: there is no JSON object in it."
    assert "did you mean 'base'" in str(rejected[3])
    assert "files.go_up makes no sense" in str(rejected[4])
    assert proposals[4].value is not None
    assert all(proposal.sample is not None for proposal in proposals), "a rejected proposal is learnt from"
    assert len(engine.requests) == len(texts)


def test_the_most_informative_specifications_are_shown() -> None:
    known = [Known(SOURCE.read(GOOD), place / 10, 4) for place in range(11)]
    assert [each.p for each in most_informative(known, 4)] == [0.5, 0.4, 0.0, 1.0]
    assert most_informative(known[:2], 4) == [known[1], known[0]]
    assert most_informative(known, 0) == []


def test_the_random_writer_writes_what_can_be_composed_each_once() -> None:
    writer = make("random")
    proposals = write(writer, n=12)
    assert write(make("random"), n=12) == proposals
    assert write(writer, n=12, seed=4) != proposals
    assert all(proposal.rejection is None and proposal.sample is None for proposal in proposals)
    assert len({proposal.value for proposal in proposals}) == 12
    hopeless = make("random", lambda _: "specification: it is not wanted.")
    assert [proposal.rejection for proposal in write(hopeless, n=2)] == ["specification: it is not wanted."] * 2


def test_the_static_writer_writes_once() -> None:
    writer = make("static")
    assert len(write(writer, n=5)) == 5
    assert write(writer, n=5) == ()
    again = make("static")
    again.set_state(json.loads(json.dumps(writer.get_state())))
    assert write(again, n=5) == ()
    with pytest.raises(UserError, match="kind 'static' was given to a task writer of kind 'random'"):
        make("random").set_state(writer.get_state())


def dumped(proposals: Sequence[Proposal[Specification]]) -> list[str | None]:
    return [None if each.value is None else each.value.dump() for each in proposals]


def test_the_shuffled_writer_writes_recorded_windows_each_in_anothers_place() -> None:
    windows: list[list[str | None]] = [dumped(write(make("random"), n=3, seed=seed)) for seed in range(6)]
    windows[2][1:] = [None, "[" * 200]
    writer = make("shuffled", windows=windows, seed=4)
    found = []
    for place in range(6):
        if place == 3:
            state = json.loads(json.dumps(writer.get_state()))
            writer = make("shuffled", windows=windows, seed=4)
            writer.set_state(state)
        proposals = write(writer, n=3, seed=place)
        found.append(dumped(proposals))
        assert found[-1][0] != windows[place][0]
        assert all(each.rejection for each in proposals if each.value is None)
    windows[2][2] = None  # nothing can be read there
    assert sorted(found, key=str) == sorted(windows, key=str), "all that was recorded, in another order"
    assert write(writer, n=3) == (), "nothing is written after the last window"
    with pytest.raises(UserError, match=r"task_writer.recorded: it does not hold the specifications"):
        make("shuffled", windows=windows[:5], seed=4).set_state(writer.get_state())


@pytest.mark.parametrize(("count", "different"), [(2, 1), (3, 2), (17, 50)])
def test_no_window_is_left_in_its_place(count: int, different: int) -> None:
    orders = [elsewhere(count, seed) for seed in range(50)]
    for order in orders:
        assert sorted(order) == list(range(count))
        assert all(place != other for place, other in enumerate(order))
    assert len(set(map(tuple, orders))) == different


def test_demonstrations_can_all_be_composed_and_are_what_a_writer_reads() -> None:
    shown = list(itertools.islice(specification_demonstrations(5, answers=2), 20))
    assert shown == list(itertools.islice(specification_demonstrations(5, answers=2), 20))
    answers = [answer for each in shown for answer in each.answers]
    for answer in answers:
        specification = SOURCE.read(answer)
        assert specification.dump() == answer
        assert specification.depth <= DEEPEST
        assert any(not isinstance(SOURCE.compose(specification, seed), Rejected) for seed in range(20))
    assert shown[0].messages[0] == messages_for(PROFILE, grammar=SOURCE.specification_help)[0]
    assert len({SOURCE.read(answer).category for answer in answers}) == 4
    assert len(set(answers)) == len(answers)


def test_answers_behind_one_prompt_have_the_loss_that_each_has_alone() -> None:
    torch.set_num_threads(1)
    model = Qwen2ForCausalLM.from_pretrained(tiny.FOLDER, dtype=torch.float32, num_hidden_layers=2).double()
    (each,) = itertools.islice(specification_demonstrations(1, answers=3), 1)
    losses = []
    for answers in (each.answers, *((answer,) for answer in each.answers)):
        row = encoding.encode_specifications(ProposalDemonstration(each.messages[1:], answers), FORM)
        tokens_BT = torch.tensor([row.token_ids_T])
        inputs = encoding.shared_prompt_inputs([row], len(row.token_ids_T) - 1)
        hidden = model.model(input_ids=tokens_BT[:, :-1], **inputs).last_hidden_state.flatten(0, 1)
        logits = model.lm_head(hidden[encoding.predicting_places([row], len(hidden)).flatten()])
        found = torch.nn.functional.cross_entropy(logits, tokens_BT[0, 1:], reduction="none")
        losses.append(found[len(found) - sum(row.said_T) :])
    assert torch.allclose(losses[0], torch.cat(losses[1:]), atol=1e-9)
