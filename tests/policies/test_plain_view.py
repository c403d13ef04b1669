"""Plain views: the same sampled tokens, judged as before, with nothing of a cue between them; and why there is none."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from envs import allowance
from envs.dialogue import Protocol
from envs.errors import EnvironmentFault
from envs.interface import Interface
from envs.interface.value import CueKind, RecoveryLevel, SchemaCue
from envs.task import Task, ToolCall
from envs.toolworld import generate, tasks
from policies.cue_dependence import RUN_OF_WORDS, CueDependence, CueDependenceFinder
from policies.plain_view import NoView, PlainView, plain_view, replayed
from policies.prompting import ChatFormat
from policies.solver import Budgets
from policies.trajectory import End, Trajectory
from tests.policies.chat_models import chat_format, family_tokenizer
from tests.policies.plain_views import WIDE, Case, check_view, forms, play, random_case

FORM = chat_format("qwen")
TASKS = tasks(6, split="dev")
TASK = TASKS[0]
GUIDELINE = "Finish all parts of a request: if two things are asked for, do two things."
GUIDED = Interface(guidelines=(GUIDELINE,))
FEEDBACK = Interface(recovery=RecoveryLevel.SCHEMA)
ENUM = Interface(schema_cues=(SchemaCue(CueKind.ENUM),))
UNKNOWN = FORM.dialect.render_calls([ToolCall("no_such_tool", {})])


def called(tool: str, **arguments: Any) -> str:
    return FORM.dialect.render_calls([ToolCall(tool, arguments)])


def solution(task: Task) -> list[str]:
    return [
        said
        for turn in task.turns
        for said in ([FORM.dialect.render_calls(turn.ground_truth)] if turn.ground_truth else []) + ["Done."]
    ]


def view_of(trajectory: Trajectory, task: Task = TASK, budgets: Budgets = WIDE) -> PlainView | NoView:
    return plain_view(trajectory, task, FORM, budgets)


def viewed(task: Task, said: list[str], interface: Interface) -> PlainView | NoView:
    return view_of(play(task, FORM, said, interface=interface), task)


def test_random_trajectories_are_judged_alike_and_no_token_of_a_cue_is_left() -> None:
    reasons, ends, labels = Counter[str](), Counter[End](), Counter[str]()
    wrong = same = 0
    for number in range(160):
        case = random_case(1, number)
        view = plain_view(case.trajectory, case.task, case.form, case.budgets)
        ends[case.trajectory.end] += 1
        labels.update(case.trajectory.diagnosis.labels)
        shown = replayed(case.trajectory, case.task, case.form, case.budgets, case.interface)
        if isinstance(shown, NoView):
            assert case.trajectory.end is End.PROMPT
            continue
        # Under its own interface the replay is the trajectory; where a cue was to be seen, that is no plain view.
        again = shown.record.sample(case.trajectory.seed).extended(PlainView, sampled=tuple(shown.sampled))
        assert (again.token_ids_T, again.mask_T) == (case.trajectory.token_ids_T, case.trajectory.mask_T)
        if isinstance(view, NoView):
            reasons[view] += 1
            continue
        check_view(view, case)
        if again.token_ids_T == view.token_ids_T:
            same += 1
            assert not case.interface.guidelines
        else:
            wrong += 1
            with pytest.raises(AssertionError, match="not plain"):
                check_view(again, case)
    assert wrong > 100 > same
    assert set(reasons) <= {NoView.PROMPT, NoView.CRUTCH_VALUE}, "no policy here was made to quote"
    assert {end for end in End if not ends[end]} == {End.TURN}, "of turn probes alone"
    assert len(labels) >= 10


@pytest.mark.parametrize(
    ("name", "protocol"), [("qwen", Protocol.SEAL), ("llama3_json", Protocol.OFFICIAL), ("toolace", Protocol.SEAL)]
)
def test_a_view_is_what_plain_play_would_have_been(name: str, protocol: Protocol) -> None:
    form = forms()[name]
    interface = Interface((SchemaCue(CueKind.REQUIRED), SchemaCue(CueKind.FORMAT)), RecoveryLevel.CLASS, (GUIDELINE,))
    said = [form.dialect.render_calls([ToolCall("no_such_tool", {"x": 1})]), "I see.", "Done."]
    trajectory, plain = (
        play(TASK, form, said, interface=shown, protocol=protocol) for shown in (interface, Interface.plain())
    )
    view = plain_view(trajectory, TASK, form, WIDE)
    assert isinstance(view, PlainView)
    assert len(view.token_ids_T) < len(trajectory.token_ids_T)
    assert (view.token_ids_T, view.mask_T) == (plain.token_ids_T, plain.mask_T)


def test_a_plain_trajectory_is_its_own_view() -> None:
    for budgets in (WIDE, replace(WIDE, prompt=1), replace(WIDE, steps=1)):
        trajectory = play(TASK, FORM, [UNKNOWN, GUIDELINE], interface=Interface.plain(), budgets=budgets)
        view = view_of(trajectory, budgets=budgets)
        assert isinstance(view, PlainView)
        assert all(getattr(view, field.name) == getattr(trajectory, field.name) for field in fields(view))


def test_a_view_ends_where_its_trajectory_did() -> None:
    whole = play(TASK, FORM, solution(TASK), interface=GUIDED)
    opening = whole.sampled[0].begin
    for context in range(opening, len(whole.token_ids_T) + 1, 60):
        budgets = Budgets(prompt=opening, response=4096, context=context)
        trajectory = play(TASK, FORM, solution(TASK), interface=GUIDED, budgets=budgets)
        view = view_of(trajectory, budgets=budgets)
        if isinstance(view, NoView):
            assert (view, trajectory.sampled) == (NoView.PROMPT, ())
            continue
        check_view(view, Case(TASK, FORM, GUIDED, budgets, trajectory))
        saved = len(trajectory.token_ids_T) - len(view.token_ids_T)
        assert saved == trajectory.sampled[0].begin - view.sampled[0].begin > 0
    for budgets in (replace(WIDE, prompt=20), Budgets(prompt=20, response=4096, context=1100)):
        assert view_of(whole, budgets=budgets) is NoView.PROMPT
    assert view_of(whole, budgets=replace(WIDE, prompt=opening, context=opening)) is NoView.CONTEXT


def test_what_was_judged_otherwise_has_no_view() -> None:
    solved = play(TASK, FORM, solution(TASK), interface=GUIDED)
    failed = play(TASK, FORM, ["Done."], interface=GUIDED)
    assert (solved.reward, failed.reward) == (1.0, 0.0)
    assert isinstance(view_of(solved), PlainView)
    assert isinstance(view_of(failed), PlainView)
    assert view_of(replace(solved, reward=0.0)) is NoView.REWARD
    assert view_of(replace(failed, diagnosis=replace(solved.diagnosis, success=False))) is NoView.LABELS
    assert view_of(replace(solved, end=End.STEPS)) is NoView.LABELS
    changed = replace(solved.trace, task_id="another")
    assert view_of(replace(solved, trace=changed)) is NoView.TRACE
    assert plain_view(failed, TASKS[1], FORM, WIDE) in (NoView.LABELS, NoView.TRACE), "another task"


def test_feedback_that_took_the_room_of_a_result_leaves_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    # Results are cut where the dialogue's room for them ends, and feedback takes some of it.
    monkeypatch.setattr(allowance, "CHARACTERS_A_TOKEN", 1)
    bad = FORM.dialect.render_calls([ToolCall(TASK.tools[0].name, {"none": 1})])
    seen = set()
    for context in range(4_000, 6_000, 200):
        budgets = Budgets(prompt=context, response=512, context=context)
        trajectory = play(TASK, FORM, [bad] * 20, interface=FEEDBACK, budgets=budgets, protocol=Protocol.SEAL)
        view = view_of(trajectory, budgets=budgets)
        seen.add(view if isinstance(view, NoView) else None)
    assert NoView.TRACE in seen, seen


def test_a_world_that_fails_in_the_replay_leaves_no_view() -> None:
    users = [SimpleNamespace(say=lambda turn, completions: "Please continue.")]
    task = replace(TASK, user=users.pop)
    trajectory = play(task, FORM, ["Done."], interface=GUIDED)
    assert view_of(trajectory, task) is NoView.FAULT
    with pytest.raises(EnvironmentFault):
        play(task, FORM, ["Done."], interface=GUIDED)


def test_a_rollout_that_quotes_a_guideline_has_no_view() -> None:
    for quote in (
        *("finish all parts of a request", "So I must FINISH, all parts -- of “a” request!"),
        *("if two things are asked for", f"<think>{GUIDELINE}</think>", "of a request: if two things"),
    ):
        for said in ([quote], [UNKNOWN, quote], [called("f", a=quote)]):
            assert viewed(TASK, said, GUIDED) is NoView.CRUTCH_QUOTE, said
            assert isinstance(viewed(TASK, said, FEEDBACK), PlainView), "only what was shown can be quoted"


def test_fewer_words_and_what_plain_shows_too_are_no_quotation() -> None:
    user = str(TASK.turns[0].user)
    documents = " ".join(str(dict(tool.document)) for tool in TASK.tools)
    assert len(user.split()) > RUN_OF_WORDS
    for said in ("all parts of a request", "finish each part of a request", user, documents, ""):
        assert isinstance(viewed(TASK, [said], GUIDED), PlainView)
    repeating = Interface(guidelines=(f"Remember: {user}",))
    assert isinstance(viewed(TASK, [user], repeating), PlainView), "the user says it too"


def test_quotations_of_feedback_and_of_schema_cues_count_from_when_they_were_shown() -> None:
    hint = "[HINT] This tool is not available now."
    assert viewed(TASK, [UNKNOWN, hint], FEEDBACK) is NoView.CRUTCH_QUOTE
    assert isinstance(viewed(TASK, [hint, UNKNOWN], FEEDBACK), PlainView), "it was said before"
    shown = Interface((SchemaCue(CueKind.REQUIRED), SchemaCue(CueKind.FORMAT)))
    tool = max(TASK.tools, key=lambda each: len(each.required))
    cue = f"{tool.document['description']} Required arguments: {', '.join(tool.required)}."
    assert viewed(TASK, [cue], shown) is NoView.CRUTCH_QUOTE
    assert viewed(TASK, [FORM.dialect.call_format], shown) is NoView.CRUTCH_QUOTE
    assert isinstance(viewed(TASK, [cue], GUIDED), PlainView)


def told_by_the_cue() -> tuple[Task, str, str, str]:
    """A generated task, a tool of it with an argument, and a value that the compact documents do not show."""
    for task in map(generate, range(500)):
        texts = str([turn.user for turn in task.turns] + [dict(tool.document) for tool in task.all_tools]).lower()
        enums = (
            (tool.name, each.name, value) for tool in task.tools for each in tool.parameters for value in each.enum
        )
        for tool, argument, value in enums:
            if value.lower() not in texts and "required" not in texts.replace("'required'", ""):
                return task, tool, argument, value
    raise AssertionError("no such task")


def test_a_value_that_only_a_cue_told_leaves_no_view() -> None:
    task, tool, argument, value = told_by_the_cue()
    right, wrong = called(tool, **{argument: value}), called(tool, **{argument: "backwards"})
    assert viewed(task, [right], ENUM) is NoView.CRUTCH_VALUE
    assert viewed(task, ["Done.", right], ENUM) is NoView.CRUTCH_VALUE
    for interface in (GUIDED, FEEDBACK, Interface((SchemaCue(CueKind.REQUIRED),))):
        assert isinstance(viewed(task, [right], interface), PlainView)
    assert isinstance(viewed(task, [wrong], ENUM), PlainView), "a value of its own"
    assert isinstance(viewed(task, [f"I shall use {value}."], ENUM), PlainView), "nothing is called"
    told = replace(task, turns=(replace(task.turns[0], user=f"Please use {value.upper()}."), *task.turns[1:]))
    assert isinstance(viewed(told, [right], ENUM), PlainView), "the user told it"


def test_a_value_from_recovery_feedback_leaves_no_view_unless_it_was_the_policys_own() -> None:
    task, tool, argument, value = told_by_the_cue()
    # The feedback to a wrong value repeats the allowed ones.
    right, wrong = called(tool, **{argument: value}), called(tool, **{argument: "backwards"})
    assert viewed(task, [wrong, right], FEEDBACK) is NoView.CRUTCH_VALUE
    assert isinstance(viewed(task, [right, wrong, right], FEEDBACK), PlainView), "it was called so before"
    named, none = called(tool, documentation=1), called("none")
    for said in (named, none):
        assert isinstance(viewed(task, [said], FEEDBACK), PlainView)
    assert viewed(task, [wrong, named], FEEDBACK) is NoView.CRUTCH_VALUE, "a name of an argument"
    assert viewed(task, [UNKNOWN, none], FEEDBACK) is NoView.CRUTCH_VALUE, "a name of a tool"


def finder(shown: str, plain: str = "") -> tuple[CueDependenceFinder, ChatFormat]:
    form = ChatFormat(family_tokenizer("Qwen3"), FORM.dialect, name="bytes")
    made = CueDependenceFinder(form)
    made.read(form.tokens(shown), form.tokens(plain))
    return made, form


def test_values_are_compared_in_words() -> None:
    for value, expected in (
        *((5, None), (12345, CueDependence.VALUE), (2.5, CueDependence.VALUE), (True, None), (10**4000, None)),
        *((1 << 100_000, None), ("log IN", CueDependence.VALUE), ("in log", None)),
        *((["x", {"log": 1}], CueDependence.VALUE), ([[], {}, None, ""], None), ("…", None)),
        ("five or more words than that and others", None),
    ):
        found, _ = finder("Log in with 12345 or 2.5. True or five.", "plain")
        assert found.find((), [ToolCall("f", {"x": value})]) is expected, value
    found, _ = finder("one two three four five six seven", "one two three")
    assert found.find((), [ToolCall("f", {"x": "one two three"})]) is None
    assert found.find((), [ToolCall("f", {"x": "0 1 one two three four five six"})]) is CueDependence.QUOTE


@pytest.mark.parametrize("piece", ["a ", "1", "1.", " ", "\u0301\u0316", "\ufdfa", "one two three four five x "])
def test_long_hostile_texts_cost_little(piece: str) -> None:
    text = (piece * 100_000)[:100_000]
    found, form = finder("one two three four five six " * 4_000, "one two three")
    ids = form.tokens(text)
    calls = [ToolCall(text, {text: text, "b": [text[:1_000]] * 100}), *[ToolCall("one", {"two": "four"})] * 2_000]
    started = time.process_time()
    found.find(ids, calls)
    found.read(ids, ())
    found.find(ids, calls)
    assert time.process_time() - started < 5.0
