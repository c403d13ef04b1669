"""API-Bank's dialogues played through: what is right, what is wrong, and what a hostile completion can do."""

import time
from pathlib import Path

import pytest

from envs.apibank.data import VARIABLE
from envs.apibank.source import ApiBank
from envs.diagnosis import Label
from envs.dialects import DIALECTS
from envs.dialogue import Dialogue
from envs.errors import UserError
from envs.sources import get_source
from envs.task import Task, ToolCall
from tests.envs.apibank.fake import write_folder
from tests.envs.apibank.folder import FOLDER, needs_data
from tests.envs.apibank.test_simulators import HOSTILE
from tests.envs.players import begun

QWEN = DIALECTS["qwen"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApiBank:
    monkeypatch.setenv(VARIABLE, str(write_folder(tmp_path / "api-bank")))
    return ApiBank()


def play(task: Task, *turns: list[ToolCall]) -> Dialogue:
    """One completion with these calls a turn, where there are any."""
    dialogue = begun(task)
    for calls in turns:
        if calls:
            dialogue.step(QWEN.render_calls(calls))
        if not dialogue.over:
            dialogue.step("Done.")
    return dialogue


def truth(task: Task) -> list[list[ToolCall]]:
    return [list(turn.ground_truth) for turn in task.turns]


def test_a_dialogue_is_played_with_its_users_texts_in_order(source: ApiBank) -> None:
    task = source.task("api_bank_SetLamp-level-1-1")
    assert [turn.user for turn in task.turns] == ["Turn on the lamp of the kitchen, my token is t1.", "At 7.", "Is it?"]
    assert [len(turn.ground_truth) for turn in task.turns] == [0, 1, 1]
    assert [tool.name for tool in task.tools] == ["SetLamp", "ReadLamp"]
    assert play(task, *truth(task)).success
    assert {task.id for task in source.split().test} == {
        *("api_bank_ReadLamp-level-1-2", "api_bank_SetLamp-level-1-1", "api_bank_ReadLamp-level-3-1")
    }
    assert all(play(task, *truth(task)).success for task in source.split().test)


def test_what_an_apis_rule_takes_for_the_same_is_right_and_all_else_is_wrong(source: ApiBank) -> None:
    task = source.task("api_bank_SetLamp-level-1-1")
    (_, (call,), (read,)) = truth(task)
    dimmer = ToolCall("SetLamp", {**call.arguments, "level": 6})
    assert not play(task, [], [dimmer], [read]).success, "its rule does not look at the level, but reading shows it"
    assert play(task, [], [call, read], [read]).success, "reading changes nothing"
    other = ToolCall("SetLamp", {**call.arguments, "room": "hall"})
    spoilt = play(task, [], [call, other], [read])
    assert [str(each.label) for each in spoilt.turn_diagnoses][1:] == [Label.STATE_MISMATCH, Label.INHERITED_STATE]
    assert not play(task, [], [], [read]).success
    mistake = ToolCall("SetLamp", {**call.arguments, "token": "t2"})
    assert play(task, [], [mistake, call], [read]).success, "a mistake that changed nothing can be corrected"


def test_hostile_calls_are_error_results_and_a_dialogue_is_bounded(source: ApiBank) -> None:
    task = source.task("api_bank_SetLamp-level-1-1")
    for call in HOSTILE:
        if call.arguments.get("level") == 1 << 100_000:
            continue  # no dialect can write or read it
        dialogue = begun(task)
        said = QWEN.render_calls([ToolCall(call.name, dict(list(call.arguments.items())[:50]))] * 3)
        started = time.process_time()
        dialogue.step(said)
        assert time.process_time() - started < 1
        assert dialogue.trace.turns[0] == () or all(record.is_error for record in dialogue.trace.turns[0][0].calls)
    dialogue = begun(task)
    reads = [ToolCall("ReadLamp", {"room": "hall"})] * 100
    dialogue.step(QWEN.render_calls([ToolCall("Rogue", {"deed": "exit"}), *reads]))
    records = dialogue.trace.turns[0][0].calls
    assert [record.result for record in records[1:3]] == ['{"error": "The APIs do not answer any more."}'] * 2
    assert len(records) <= 21
    assert play(task, *truth(task)).success, "other dialogues are not touched"


def test_without_its_folder_it_owns_its_ids_and_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("envs.sources.own_sources", [])  # who is named is known from then on
    source = get_source("envs.apibank.source:SOURCE")
    assert source.parts == ("test",)
    assert source.owns("api_bank_SetLamp-level-1-1")
    with pytest.raises(UserError, match="its folder is not known"):
        ApiBank().split()


@needs_data
def test_nearly_all_dialogues_of_the_benchmark_can_be_played(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(FOLDER))
    tasks = ApiBank().split().test
    assert (len(tasks), sum(task.category == "level-1" for task in tasks)) == (244, 197)
    assert all(play(task, *truth(task)).success for task in tasks)
