"""Writers of tasks: what they read and write, that hostile answers are rejected, and what the tiny base is shown."""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from envs.diagnosis import Diagnosis, Label, TurnDiagnosis
from envs.errors import UserError
from envs.profile import FailureProfile
from envs.specifications import Rejected, Specification, writable
from envs.verifier import Outcome, TurnVerdict
from policies import tiny
from policies.documents import Writing
from policies.engine import GenRequest
from policies.engine.scripted import ScriptedEngine
from policies.model_folder import open_model
from policies.prompting import ChatFormat
from policies.tiny.specifications import specification_demonstrations
from policies.tiny.training import WRITER_RECIPE, encode_specification
from policies.writer import Draft, Known, TaskWriter
from policies.writer.choice import is_model, learns, make_writer, writes
from policies.writer.llm import LearningWriter, LLMWriter
from policies.writer.specification_text import messages_for, telling

MODEL = open_model(tiny.NAME)
FORM = ChatFormat.load(MODEL.path, MODEL.dialect)
VOCABULARY = int(MODEL.config["vocab_size"])
SOURCE = writable("toolworld")
GOOD = SOURCE.read('{"category": "base", "scenes": ["files"], "turns": [["files.show"]]}').dump()
STUCK = GOOD.replace("files.show", "files.go_up")


def profile() -> FailureProfile:
    found = FailureProfile()
    turn = TurnDiagnosis(0, Label.SPURIOUS_TOOL_CALL, "", TurnVerdict(0, Outcome.UNSCORED))
    found.add(Diagnosis("a_task", "base", (turn,), success=False), 0.0)
    return found


def check(specification: Specification) -> str | None:
    made = SOURCE.compose(specification, 0)
    return made.reason if isinstance(made, Rejected) else None


def write(writer: TaskWriter, *, n: int, seed: int = 3, known: Sequence[Known] = ()) -> tuple[Draft, ...]:
    return asyncio.run(writer.write(profile(), known=known, n=n, seed=seed))


def says(*texts: str) -> Callable[[GenRequest], Sequence[int]]:
    """Says these texts in turn, by the request's seed in the order that seeds are first seen in."""
    seen: dict[int, int] = {}
    return lambda request: FORM.completion(texts[seen.setdefault(request.seed, len(seen)) % len(texts)])


def llm(*texts: str, **settings: Any) -> tuple[LLMWriter, ScriptedEngine]:
    engine = ScriptedEngine(
        says(*texts), context=4096, vocabulary=VOCABULARY, logprob=lambda _, token: -(token % 7) / 8
    )
    writing = Writing(**{"context": 4096, "max_tokens": 200, "constrained": False, "retries": 0, **settings})
    return LLMWriter(lambda: engine, FORM, writing, source=SOURCE, check=check), engine


def test_a_specification_is_read_and_kept_as_it_was_sampled() -> None:
    writer, engine = llm(f"Here it is: {GOOD}")
    (draft,) = write(writer, n=1)
    assert draft.specification == SOURCE.read(GOOD)
    assert draft.rejection is None
    (request,) = engine.requests
    said = FORM.completion(f"Here it is: {GOOD}")
    assert draft.sample is not None
    assert draft.sample.token_ids_T == request.prompt_ids + said
    assert sum(draft.sample.mask_T) == len(said)
    assert draft.sample.sampled_logprobs_T[-len(said) :] == tuple(-(token % 7) / 8 for token in said)


def test_it_reads_counts_the_grammar_and_success_by_specification_but_no_task() -> None:
    writer, engine = llm(GOOD)
    write(writer, n=1, known=[Known(SOURCE.read(GOOD), 0.25, 8.0)])
    text = FORM.text(engine.requests[0].prompt_ids)
    assert "- spurious_tool_call: 1 turns, success 0.0%" in text
    assert f"25% of 8 {GOOD}" in text
    assert "files: show, open_in" in text
    assert "a_task" not in text


def test_what_cannot_be_read_or_composed_is_rejected_with_the_reason() -> None:
    texts = ("", "no", GOOD[:-3], GOOD.replace("base", "bas"), STUCK, "[" * 150, GOOD)
    writer, engine = llm(*texts)
    drafts = write(writer, n=len(texts))
    reasons = [draft.rejection for draft in drafts]
    assert [bool(reason) for reason in reasons] == [True] * 6 + [False]
    assert reasons[0] == "specification: there is no JSON object in it."
    assert "did you mean 'base'" in str(reasons[3])
    assert "files.go_up makes no sense" in str(reasons[4])
    assert all(draft.sample is not None for draft in drafts), "a rejected draft is learnt from"
    assert drafts[4].specification is not None
    assert len(engine.requests) == len(texts)


def test_what_is_unreadable_is_sampled_again_and_what_cannot_be_composed_is_not() -> None:
    writer, engine = llm("no", GOOD, retries=2)
    (draft,) = write(writer, n=1)
    assert draft.rejection is None
    assert len(engine.requests) == 2
    writer, engine = llm(STUCK, GOOD, retries=2)
    (draft,) = write(writer, n=1)
    assert draft.rejection is not None
    assert len(engine.requests) == 1


def test_a_long_answer_and_a_full_prompt_are_rejected() -> None:
    writer, _ = llm(GOOD, max_tokens=10)
    (draft,) = write(writer, n=1)
    assert draft.rejection == "specification: it did not end within 10 tokens."
    writer, _ = llm(GOOD, context=500)
    (draft,) = write(writer, n=1)
    assert draft.rejection is not None
    assert draft.sample is None


def test_with_a_grammar_the_schema_goes_with_the_request() -> None:
    writer, engine = llm(GOOD, constrained=True)
    write(writer, n=1)
    schema = engine.requests[0].json_schema
    assert schema is not None
    for text in (GOOD, *(SOURCE.draw(random.Random(seed)).dump() for seed in range(100))):
        jsonschema.validate(json.loads(text), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**json.loads(GOOD), "ground_truth": []}, schema)


def test_the_specifications_that_tell_most_are_shown() -> None:
    known = [Known(SOURCE.read(GOOD), place / 10, 4) for place in range(11)]
    assert [each.p for each in telling(known, 4)] == [0.5, 0.4, 0.0, 1.0]
    assert telling(known[:2], 4) == [known[1], known[0]]
    assert telling(known, 0) == []


def test_the_random_writer_writes_what_can_be_composed_each_once() -> None:
    writer = make_writer("random", SOURCE, check)
    drafts = write(writer, n=12)
    assert write(make_writer("random", SOURCE, check), n=12) == drafts
    assert write(writer, n=12, seed=4) != drafts
    assert all(draft.rejection is None and draft.sample is None for draft in drafts)
    assert len({draft.specification for draft in drafts}) == 12
    hopeless = make_writer("random", SOURCE, lambda _: "specification: it is not wanted.")
    assert [draft.rejection for draft in write(hopeless, n=2)] == ["specification: it is not wanted."] * 2


def test_the_static_writer_writes_once() -> None:
    writer = make_writer("static", SOURCE, check)
    assert len(write(writer, n=5)) == 5
    assert write(writer, n=5) == ()
    again = make_writer("static", SOURCE, check)
    again.set_state(json.loads(json.dumps(writer.get_state())))
    assert write(again, n=5) == ()
    with pytest.raises(UserError, match="kind 'static' was given to a writer of kind 'random'"):
        make_writer("random", SOURCE, check).set_state(writer.get_state())


def test_kinds_are_found_by_name() -> None:
    kinds = ("none", "static", "random", "llm", "learning")
    assert {kind: (writes(kind), is_model(kind), learns(kind)) for kind in kinds} == {
        "none": (False, False, False),
        "static": (True, False, False),
        "random": (True, False, False),
        "llm": (True, True, False),
        "learning": (True, True, True),
    }
    assert write(make_writer("none", SOURCE, check), n=3) == ()
    assert LearningWriter.learns
    with pytest.raises(UserError, match=r"writer.kind: 'lm' is not known; did you mean 'llm'"):
        writes("lm")


def test_demonstrations_can_all_be_composed_and_are_what_a_writer_reads() -> None:
    shown = list(itertools.islice(specification_demonstrations(5), 40))
    assert shown == list(itertools.islice(specification_demonstrations(5), 40))
    for each in shown:
        specification = SOURCE.read(each.answer)
        assert specification.dump() == each.answer
        assert specification.depth <= 3
        assert any(not isinstance(SOURCE.compose(specification, seed), Rejected) for seed in range(20))
    assert shown[0].messages[0] == messages_for(profile(), grammar=SOURCE.specification_help)[0]
    assert len({SOURCE.read(each.answer).category for each in shown}) == 4


def test_a_demonstration_is_encoded_as_its_answer() -> None:
    for each in itertools.islice(specification_demonstrations(0), 5):
        example = encode_specification(each, FORM)
        begin = example.said_T.index(True)
        assert example.token_ids_T[:begin] == FORM.chat(each.messages)
        assert example.token_ids_T[begin:] == FORM.completion(each.answer)
        assert all(example.said_T[begin:])
        assert example.decided == (begin,)
    assert WRITER_RECIPE.start == tiny.NAME
