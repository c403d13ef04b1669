"""API-Bank's items: what is shown before a call, and how an answer becomes a mark."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.apibank.data import VARIABLE, folder_of, typed
from envs.apibank.exam import ApiBankExam, ApiCall
from envs.dialects import DIALECTS
from envs.dialogue import Message
from envs.errors import UserError
from envs.exams import EXAMS, Mark, Past
from envs.task import ToolCall
from tests.envs.apibank.fake import assistant, called, user, write_folder
from tests.envs.players import mark


@pytest.fixture(scope="module")
def exam(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiBankExam]:
    found = EXAMS.make("api-bank", {"data": str(write_folder(tmp_path_factory.mktemp("api-bank")))})
    yield found
    found.close()


@pytest.fixture(scope="module")
def items(exam: ApiBankExam) -> dict[str, ApiCall]:
    return {item.id.removeprefix("api_bank_"): item for item in exam.items()}


def test_every_call_is_an_item_and_a_dialogue_a_group(items: dict[str, ApiCall], exam: ApiBankExam) -> None:
    names = ("ReadLamp-level-1-2", "SetLamp-level-1-1", "ReadLamp-level-3-1")
    assert list(items) == [f"{name}#{number}" for name in names for number in (0, 1)]
    assert [item.category for item in items.values()] == ["level-1"] * 4 + ["level-2"] * 2
    assert len({item.group for item in items.values()}) == 3
    (note,) = exam.notes()
    assert "ToolSearcher (1)" in note, "what cannot be executed"


def test_the_history_is_what_stood_before_the_call(items: dict[str, ApiCall]) -> None:
    dialect = DIALECTS["qwen"]
    first = items["SetLamp-level-1-1#0"].conversation(dialect)
    assert [tool.name for tool in first.tools] == ["SetLamp", "ReadLamp"]
    assert [entry.role for entry in first.entries if isinstance(entry, Message)] == ["system", "user", "user"]
    assert first.entries[-1] == Past("Let me do that."), "the answer continues after it"
    second = items["SetLamp-level-1-1#1"].conversation(dialect).entries
    call = ToolCall("SetLamp", {"room": "kitchen", "level": 7, "token": "t1"})
    assert second[4] == Past("Let me do that.", (call,)), "values have the documented types"
    assert second[5] == Message("tool", "1234")
    assert second[-1] == Message("user", "Is it?")
    shown = items["ReadLamp-level-3-1#1"].conversation(DIALECTS["llama3_json"])
    assert [tool.name for tool in shown.tools] == ["ToolSearcher"], "at level 2 the search alone"
    assert Message("ipython", '{"name": "ReadLamp"}') in shown.entries


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_ground_truth_is_right_in_every_dialect(items: dict[str, ApiCall], exam: ApiBankExam, dialect: str) -> None:
    for item in items.values():
        call = typed(item.truth.call, exam.tools[item.truth.call.name])
        said = DIALECTS[dialect].render_calls([call])
        expected = item.id != "api_bank_SetLamp-level-1-1#1"  # its lamp is still dark at the beginning
        assert mark(item, said, dialect=dialect).right is expected, item.id


def test_the_first_call_counts_and_anything_else_is_wrong(items: dict[str, ApiCall]) -> None:
    item, dialect = items["ReadLamp-level-1-2#0"], DIALECTS["qwen"]
    right, wrong = ToolCall("ReadLamp", {"room": "hall"}), ToolCall("ReadLamp", {"room": "kitchen"})
    assert mark(item, dialect.render_calls([right, wrong])).right
    assert not mark(item, dialect.render_calls([wrong, right])).right
    assert mark(item, "The hall is bright.") == Mark(False, "no call")
    assert mark(item, dialect.render_calls([right]), end="response") == Mark(False, "no call")
    assert "not 'ReadLamp'" in mark(item, dialect.render_calls([ToolCall("SetLamp", {})])).why
    assert mark(item, dialect.render_calls([ToolCall("ReadLamp", {"lamp": 1})])).why.startswith("invalid parameter")


def test_a_folder_that_is_none_is_refused_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UserError, match="its folder is not known; clone the benchmark's repository"):
        folder_of()
    with pytest.raises(UserError, match="has no folder apis"):
        folder_of(tmp_path)
    folder = write_folder(tmp_path / "api-bank")
    monkeypatch.setenv(VARIABLE, str(folder))
    assert folder_of() == folder
    broken = folder / "lv1-lv2-samples" / "level-1-given-desc" / "Broken-level-1-1.jsonl"
    for line in ('{"role": "Nobody", "text": "x"}', "[]", '{"role": "API"}', "no JSON"):
        broken.write_text(line + "\n")
        with pytest.raises(UserError, match=r"line 1 of .*Broken-level-1-1\.jsonl is no part of a dialogue"):
            EXAMS.make("api-bank", {"data": str(folder)})
    broken.write_text("\n".join(json.dumps(row) for row in (assistant("Hello."), called("ReadLamp", 3), user("How?"))))
    with pytest.raises(UserError, match=r"Broken-level-1-1\.jsonl calls an API before the first text of the user"):
        EXAMS.make("api-bank", {"data": str(folder)})
