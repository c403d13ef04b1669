"""API-Bank's dialogues played through: what is right, what is wrong, and what a hostile completion can do."""

import time
from pathlib import Path
from typing import Any

import pytest

from envs.apibank.data import VARIABLE
from envs.apibank.source import ApiBank
from envs.diagnosis import Label
from envs.dialects import DIALECTS
from envs.dialogue import Dialogue
from envs.errors import UserError
from envs.sources import get_source
from envs.task import ToolCall
from tests.envs.apibank.fake import write_folder
from tests.envs.apibank.folder import FOLDER, needs_data
from tests.envs.apibank.test_simulators import HOSTILE
from tests.envs.players import begun, play, play_ground_truth, records

QWEN = DIALECTS["qwen"]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApiBank:
    monkeypatch.setenv(VARIABLE, str(write_folder(tmp_path / "api-bank")))
    return ApiBank()


def test_a_dialogue_is_played_with_its_users_texts_in_order(source: ApiBank) -> None:
    task = source.task("api_bank_SetLamp-level-1-1")
    assert [turn.user for turn in task.turns] == ["Turn on the lamp of the kitchen, my token is t1.", "At 7.", "Is it?"]
    assert [len(turn.ground_truth) for turn in task.turns] == [0, 1, 1]
    assert [tool.name for tool in task.tools] == ["SetLamp", "ReadLamp"]
    names = ("ReadLamp-level-1-2", "SetLamp-level-1-1", "ReadLamp-level-3-1")
    assert {task.id for task in source.split().test} == {f"api_bank_{name}" for name in names}
    assert all(play_ground_truth(task).success for task in source.split().test)


def test_what_an_apis_rule_takes_for_the_same_is_right_and_all_else_is_wrong(source: ApiBank) -> None:
    task = source.task("api_bank_SetLamp-level-1-1")
    (call,), (read,) = task.turns[1].ground_truth, task.turns[2].ground_truth

    def played(*second: ToolCall) -> Dialogue:
        return play(task, [[], [second] if second else [], [(read,)]])

    def changed(**arguments: Any) -> ToolCall:
        return ToolCall("SetLamp", {**call.arguments, **arguments})

    assert not played(changed(level=6)).success, "its rule does not look at the level, but reading shows it"
    assert played(call, read).success, "reading changes nothing"
    spoilt = played(call, changed(room="hall"))
    assert [each.label for each in spoilt.turn_diagnoses][1:] == [Label.STATE_MISMATCH, Label.INHERITED_STATE]
    assert not played().success
    assert played(changed(token="t2"), call).success, "a mistake that changed nothing can be corrected"


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
        assert all(record.is_error for record in records(dialogue))
    dialogue = begun(task)
    reads = [ToolCall("ReadLamp", {"room": "hall"})] * 100
    dialogue.step(QWEN.render_calls([ToolCall("Rogue", {"deed": "exit"}), *reads]))
    made = records(dialogue)
    assert [record.result for record in made[1:3]] == ['{"error": "The APIs do not answer any more."}'] * 2
    assert len(made) <= 21
    assert play_ground_truth(task).success, "other dialogues are not touched"


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
    assert all(play_ground_truth(task).success for task in tasks)
