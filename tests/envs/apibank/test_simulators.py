"""The process of the simulators: what it answers, what it refuses, and that nothing comes out of it but answers."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from envs.apibank import worker
from envs.apibank.simulators import MAX_SIZE, ApiSimulators, Recorded, key_of
from envs.errors import EnvironmentFault
from envs.task import JSON, ToolCall
from tests.envs.apibank.fake import write_folder

SEARCHED = ToolCall("ToolSearcher", {"keywords": "read lamp"})


@pytest.fixture(scope="module")
def simulators(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiSimulators]:
    folder = write_folder(tmp_path_factory.mktemp("api-bank"))
    found = ApiSimulators(folder, {key_of(SEARCHED): {"output": "ReadLamp", "exception": None}})
    yield found
    found.close()


def lamp(room: JSON = "hall", level: JSON = 5, token: JSON = "t1", **more: JSON) -> ToolCall:
    return ToolCall("SetLamp", {"room": room, "level": level, "token": token, **more})


TRUTH = {"input": {"room": "hall"}, "output": "7777", "exception": None}


def test_the_documents_say_what_a_call_may_leave_out_and_what_cannot_run(simulators: ApiSimulators) -> None:
    described = simulators.describe()
    assert set(described) == {"CheckToken", "SetLamp", "ReadLamp", "Rogue", "ToolSearcher"}
    assert [name for name, each in described.items() if not each["runs"]] == ["ToolSearcher"]
    assert described["SetLamp"]["input_parameters"]["level"]["type"] == "int"
    assert described["SetLamp"]["optional"] == []


def test_a_call_is_judged_by_the_rule_of_its_api_on_the_databases_of_the_beginning(simulators: ApiSimulators) -> None:
    assert simulators.judge(lamp(), TRUTH).correct
    assert simulators.judge(lamp("hall", "5"), TRUTH).correct
    assert simulators.judge(ToolCall("ReadLamp", {"room": "hall"}), {"output": 3}).correct
    assert not simulators.judge(lamp("kitchen"), TRUTH).correct
    assert not simulators.judge(lamp(token="t2"), TRUTH).correct
    assert not simulators.judge(lamp(), {"nothing": "of what the rule reads"}).correct


def test_calls_that_are_played_see_what_was_changed_before(simulators: ApiSimulators) -> None:
    read = ToolCall("ReadLamp", {"room": "hall"})
    truths = [Recorded(lamp(), TRUTH), Recorded(read, {"output": 5})]
    first = simulators.play([], lamp(), truths)
    assert (first.error, first.correct, first.changed) == (None, [0], True)
    then = simulators.play([lamp()], read, truths)
    assert (then.result["output"], then.correct, then.changed) == (5, [1], False)
    assert simulators.play([], lamp(), truths) == first, "ids are drawn alike"
    assert simulators.play([lamp(token="no"), read], lamp(), truths).result == first.result


def test_what_cannot_run_answers_with_what_was_recorded(simulators: ApiSimulators) -> None:
    truth = {"output": "ReadLamp", "exception": None}
    assert simulators.judge(SEARCHED, truth).correct
    assert simulators.judge(ToolCall("ToolSearcher", {"keywords": " read lamp\n"}), truth).correct
    other = simulators.judge(ToolCall("ToolSearcher", {"keywords": "read a lamp"}), truth)
    assert not other.correct
    assert other.result["exception"] == "This API cannot be executed here."


HOSTILE: list[ToolCall] = [
    *(ToolCall("__init__", {}), ToolCall("API", {}), ToolCall("os", {"command": "touch hacked"})),
    *(ToolCall("SetLamp'); import os; os.system('touch hacked", {}), ToolCall("", {})),
    *(ToolCall("\ud83d\n\x00", {"\ud83d": "\n"}), ToolCall("SetLamp", {})),
    *(ToolCall("SetLamp", {"self": 1, "room": "hall", "level": 1, "token": "t1"}), lamp(__class__="x")),
    *(lamp(level="__import__('os').system('touch hacked')"), lamp(level=None), lamp(level=[1])),
    *(lamp(level=True, room={}), lamp(level=float("nan")), lamp(level=1e400), lamp(level="²")),
    *(lamp(room={"a": [1, {"b": None}]}), lamp(room="{level.__class__}" * 20), lamp(room="x" * MAX_SIZE)),
    *(lamp(room=["x"] * 10_000_000), lamp(level=1 << 100_000)),
    lamp(**{f"key{number}": number for number in range(100_000)}),
]


def test_a_hostile_call_is_only_wrong(simulators: ApiSimulators) -> None:
    ended = simulators.process.ended
    for call in HOSTILE:
        started = time.process_time()
        assert not simulators.judge(call, TRUTH).correct
        assert simulators.play([call], call, [Recorded(lamp(), TRUTH)]).correct == []
        assert time.process_time() - started < 1
        assert simulators.judge(lamp(), TRUTH).correct
    deep: JSON = "x"
    for _ in range(5_000):
        deep = [deep]
    assert simulators.judge(lamp(room=deep), TRUTH).error == "The call is too large, or took too long."
    assert simulators.process.ended == ended, "the process is still the same"


@pytest.mark.parametrize(
    "deed",
    ["write", "write here", "read", "remove", "start", "shell", "fork", "connect", "evaluate", "memory", "recurse"],
)
def test_a_simulator_can_do_nothing_but_compute(simulators: ApiSimulators, deed: str) -> None:
    judged = simulators.judge(ToolCall("Rogue", {"deed": deed}), {"output": "done"})
    assert not judged.correct
    assert judged.error is not None
    assert ("is shut off" in judged.error) == (deed not in ("memory", "recurse"))
    assert not Path("/tmp/rogue").exists()
    assert simulators.judge(lamp(), TRUTH).correct


@pytest.mark.parametrize("deed", ["sleep", "loop", "exit"])
def test_a_call_that_does_not_come_back_is_an_error_and_the_next_one_works(
    simulators: ApiSimulators, deed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert simulators.judge(lamp(), TRUTH).correct, "a process that starts has longer"
    if deed == "sleep":
        monkeypatch.setattr(simulators.process, "seconds", 2.0)
    ended, started = simulators.process.ended, time.perf_counter()
    judged = simulators.judge(ToolCall("Rogue", {"deed": deed}), {"output": "done"})
    assert (judged.correct, judged.result) == ([], None)
    assert time.perf_counter() - started < (worker.SECONDS if deed == "sleep" else 6 * worker.SECONDS)
    assert simulators.process.ended == ended + 1
    monkeypatch.undo()
    assert simulators.judge(lamp(), TRUTH).correct


def test_neither_noise_nor_length_of_an_answer_does_harm(simulators: ApiSimulators) -> None:
    assert simulators.judge(ToolCall("Rogue", {"deed": "print"}), {"output": "done"}).correct
    assert simulators.judge(ToolCall("Rogue", {"deed": "shout"}), {"output": "done"}).error == "too long"
    assert simulators.judge(lamp(), TRUTH).correct


def test_the_process_ends_with_its_owner_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homes, folder = tmp_path / "homes", write_folder(tmp_path / "api-bank")
    homes.mkdir()
    monkeypatch.setenv("TMPDIR", str(homes))
    monkeypatch.setattr("tempfile.tempdir", None)
    found = ApiSimulators(folder)
    assert found.judge(lamp(), TRUTH).correct
    pid = found.process.pid
    (home,) = homes.iterdir()
    assert list(home.iterdir()) == []
    found.close()
    assert found.process.pid is None
    assert not Path(f"/proc/{pid}").exists()
    assert list(homes.iterdir()) == []
    assert not list(folder.rglob("*.pyc")), "nothing is written into the folder either"
    assert found.judge(lamp(), TRUTH).correct, "it starts anew"
    found.close()
    assert not (Path(os.getcwd()) / "hacked").exists()


def test_a_folder_that_cannot_be_loaded_is_a_fault(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "api-bank")
    (folder / "apis" / "lamp.py").write_text("this is no Python")
    with pytest.raises(EnvironmentFault, match="cannot be loaded"):
        ApiSimulators(folder).describe()
