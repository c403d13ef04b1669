"""The leak guard on scripts other than Latin, and tool documents that a stranger wrote, in time."""

import time
from dataclasses import replace

import pytest

from envs.interface import Interface
from envs.interface.guard import LeakGuard
from envs.interface.vocabulary import is_public_number, tool_names
from envs.sources import TaskSet
from envs.task import ToolCall
from envs.tool_documents import read_tool
from envs.toolworld import generate


def told(value: str, said: str) -> LeakGuard:
    """The guard of a task whose user says that, and whose ground truth has the value."""
    task = generate(0)
    turn = task.turns[0]
    return LeakGuard([replace(task, turns=(replace(turn, user=said, ground_truth=(ToolCall("f", {"x": value}),)),))])


def is_refused(guard: LeakGuard, text: str) -> bool:
    return guard.check(Interface(guidelines=(text,))) is not None


@pytest.mark.parametrize("room", ["北京西站厨房", "ガレージ左側", "кухня-на-даче", "주방조명"])
def test_values_and_texts_of_any_script_are_guarded(room: str) -> None:
    said = f"请打开{room}的灯谢谢你帮我这个忙"
    guard = told(room, said)
    for text in (f"The room is {room}.", f"The room is {' '.join(room)}.", f'Call f with x="{room}".', said, said[-9:]):
        assert is_refused(guard, text), text
    for text in ("先看工具再回答", "スイッチを入れる", f"The room is {room[:2]}."):
        assert not is_refused(guard, text), text


@pytest.mark.parametrize(
    ("value", "said", "allowed"),
    [
        ("Юля", "Пожалуйста, включи свет", "Пожалуйста, сначала прочитай описание инструмента."),
        ("Юля", "Пожалуйста, включи свет", "Даты вроде 5 июля пишутся числами."),
        *(("물", "사용자 도구", "선물 목록을 먼저 확인하세요."), ("Straße", "Wo ist die Straße?", "Stra and e.")),
    ],
)
def test_words_of_scripts_with_blanks_are_whole(value: str, said: str, allowed: str) -> None:
    assert not is_refused(told(value, said), allowed)


def test_six_words_of_another_script_are_a_passage() -> None:
    said = "Сначала открой отчет и потом отправь его директору"
    guard = told("x", said)
    words = said.split()
    assert is_refused(guard, " ".join(words[1:7]))
    assert not is_refused(guard, " ".join(words[1:6]))


def test_letters_of_another_script_hide_no_value() -> None:
    guard = told("final_report.pdf", "Send it.")
    for text in ("finalя_яreport.pdf", "final北report北pdf", "fжiжnжaжlжrжeжpжoжrжt.pdf"):
        assert is_refused(guard, text), text


@pytest.mark.parametrize("text", ["1" * 25_000, "٣" * 25_000, "1." * 12_500, "a" * 25_000])
def test_a_long_document_costs_little(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {"type": "dict", "properties": {}, "required": []}
    tool = read_tool({"name": text, "description": f"{text} 12.50 7", "parameters": schema})
    source = TaskSet("strange", "tasks of a stranger", {"train": [replace(generate(0), tools=(tool,))]})
    monkeypatch.setattr("envs.interface.vocabulary.known_sources", lambda: (source,))
    started = time.process_time()
    assert is_public_number("12.50")
    assert is_public_number("7")
    assert not is_public_number("8")
    _, beginnings = tool_names()
    assert time.process_time() - started < 1
    assert sum(map(len, beginnings)) < 100_000
