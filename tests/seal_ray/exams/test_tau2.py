"""τ²-bench without its packages: reading dialogues, the other process, servers, and mistakes."""

import json
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from envs.errors import SealError, UserError
from policies.models import open_model
from seal_ray.cli.exam import make_play
from seal_ray.exams.exam_run import Answer
from seal_ray.exams.tau2.inspecting import InspectJob, Interpreter, find_interpreter, inspecting
from seal_ray.exams.tau2.playing import Tau2Dialogue, dialogue_row
from seal_ray.exams.tau2.servers import ServerProcess, Servers, endpoint_at
from tests.command_line import Refusal
from tests.processes import free_port
from tests.seal_ray.exams.tau2_script import Script, serving

ITEM = Tau2Dialogue("7", "airline")
USER = {"who": "user", "text": "Hi.", "calls": [], "end": "stop", "input": 5, "output": 1}
MODEL = {"who": "model", "text": "", "end": "tool_calls", "input": 7, "output": 2}
MODEL["calls"] = [["get_user", '{"id": "\ud800"}']]
BYE = {**USER, "text": "Thanks. ###STOP###"}


def played(*steps: Mapping[str, Any], right: bool = True, **more: Any) -> dict[str, Any]:
    return {"id": "7", "right": right, "why": "as wanted", "error": None, "over": None, "steps": list(steps)} | more


VERDICTS: dict[str, tuple[dict[str, Any], tuple[bool, str, str]]] = {
    "right": (played(USER, MODEL, BYE), (True, "", "stop")),
    "wrong": (played(USER, MODEL, BYE, right=False, why="database"), (False, "database", "stop")),
    "handed over": (played(USER, {**USER, "text": "###TRANSFER###"}), (True, "", "stop")),
    "not ended": (played(USER, MODEL, USER), (False, "the user did not end it (turns)", "turns")),
    "the model says goodbye": (
        played({**MODEL, "text": "###STOP###"}),
        (False, "the user did not end it (turns)", "turns"),
    ),
    "no room": (played(USER, MODEL, over="context"), (False, "the user did not end it (context)", "context")),
    "nothing": (played(over="refused"), (False, "the user did not end it (refused)", "refused")),
    "a scorer that fails": (played(USER, BYE, right=False, error="KeyError"), (False, "KeyError", "stop")),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_a_dialogue_is_right_where_the_user_ended_it_and_the_scorer_agrees(name: str) -> None:
    said, expected = VERDICTS[name]
    row = dialogue_row(ITEM, said)
    answer = Answer.from_dict(json.loads(json.dumps(row)))
    assert (answer.right, answer.why, answer.end) == expected
    assert row["scored"] == said["right"]
    assert json.dumps(row, ensure_ascii=False).encode(), "half a surrogate pair is replaced"
    row = dialogue_row(ITEM, played(USER, MODEL, MODEL, BYE))
    assert (row["sampled_tokens"], row["prompt_tokens"]) == (4, 14), "the model's own"
    assert [line.split(":")[0] for line in row["said"]] == ["user", "model", "model", "user"]


def interpreter(folder: Path, lines: Sequence[str], ending: str = "") -> Interpreter:
    """A program instead of the other interpreter, which prints these lines once it has its job."""
    path = folder / "python"
    path.write_text(
        f"#!{sys.executable}\nimport json, sys\njob = json.loads(sys.stdin.readline())\n"
        "print(json.dumps({'kind': 'tasks', 'ids': ['1', '2']}), flush=True)\n"
        "asked = json.loads(sys.stdin.readline())\n"
        f"assert asked['ids'] == ['2'] and job['task'] == 'tau2_airline'\nfor line in {list(lines)!r}:\n"
        f"    print(line, flush=True)\n{ending}\n"
    )
    path.chmod(0o755)
    return Interpreter(path, {})


def play(folder: Path, lines: Sequence[str], ending: str = "") -> list[dict[str, Any]]:
    job = InspectJob("tau2_airline", folder / "inspect", turns=3, concurrent=1)
    with inspecting(interpreter(folder, lines, ending), job) as running:
        assert running.ids == ["1", "2"]
        return list(running.play(["2"], {"model": "a", "user": "b", "variables": {}}, lambda: None))


SAMPLE = json.dumps({"kind": "sample", "id": "2"})


def test_what_the_other_process_says_is_read_until_it_is_done(tmp_path: Path) -> None:
    assert play(tmp_path, [SAMPLE, '{"kind": "done"}']) == [{"id": "2"}]
    with pytest.raises(SealError, match=r"Inspect ended before its dialogues did; its log is .*inspect.log"):
        play(tmp_path, [SAMPLE])


def test_telecom_has_a_category_for_each_kind_of_trouble() -> None:
    ids = ["[mms_issue]a|b[PERSONA:None]", "[mobile_data_issue]a[PERSONA:Hard]", "odd"]
    items = [Tau2Dialogue(each, "telecom") for each in ids]
    assert [item.category for item in items] == ["mms_issue", "mobile_data_issue", "telecom"]
    assert Tau2Dialogue("[mms_issue]", "retail").category == "retail"


@pytest.mark.parametrize(("who", "named"), [("user", "the user model"), ("model", "the model")])
def test_a_side_that_cannot_be_asked_is_named(who: str, named: str, tmp_path: Path) -> None:
    failed = json.dumps({"kind": "failed", "who": who, "why": "Connection error"})
    started = time.monotonic()
    with pytest.raises(SealError, match=rf"^{named} can no longer be reached \(Connection error\)$"):
        play(tmp_path, [SAMPLE, failed], ending="import time; time.sleep(100)")
    assert time.monotonic() - started < 60


def test_tasks_that_cannot_be_loaded_are_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "python"
    path.write_text("#!/bin/sh\necho broken >&2\n")
    path.chmod(0o755)
    job = InspectJob("tau2_airline", tmp_path / "inspect", turns=3, concurrent=1)
    with pytest.raises(SealError, match="Inspect could not load the tasks"), inspecting(Interpreter(path, {}), job):
        pass
    assert (tmp_path / "inspect" / "inspect.log").read_text() == "broken\n"


def test_a_server_that_does_not_start_is_a_sentence(tmp_path: Path) -> None:
    server = ServerProcess(str(tmp_path / "nowhere"), "nowhere", (), free_port(), tmp_path / "server.log")
    try:
        with pytest.raises(SealError, match=r"the server of nowhere has ended; its log is .*server.log"):
            server.wait()
    finally:
        server.close()
    assert "is no folder" in (tmp_path / "server.log").read_text()


def test_a_model_keeps_its_port_unless_it_is_taken(tmp_path: Path) -> None:
    port = Servers(tmp_path).port_of("a")
    assert Servers(tmp_path).port_of("a") == port
    with serving(Script(()), port):
        other = Servers(tmp_path).port_of("a")
    assert other != port
    assert Servers(tmp_path).port_of("a") == other


def test_what_is_examined_has_a_server_with_its_own_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Mock] = []

    def start(model: str, name: str, options: Sequence[str], port: int, log: Path) -> Mock:
        started.append(Mock(options=tuple(options)))
        return started[-1]

    monkeypatch.setattr("seal_ray.exams.tau2.servers.ServerProcess", start)
    servers = Servers(tmp_path)
    examined, asked = ("--response", "1024"), ("--concurrent", "64")
    user = servers.get("b", "b", asked, lambda: None, exactly=False)
    base = servers.get("b", "b", examined, lambda: None, exactly=True)
    assert (user.options, base.options) == (asked, examined)
    assert [each.close.called for each in started] == [True, False]
    assert servers.get("b", "b", asked, lambda: None, exactly=False) is base, "a user takes the one that runs"
    assert servers.get("b", "b", examined, lambda: None, exactly=True) is base


def test_a_server_that_runs_already_is_asked_for_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEAL_RAY_API_KEY", raising=False)
    with serving(Script(())) as url:
        assert endpoint_at(f"{url}/", "tiny").name == "script", "it has no other"
        assert endpoint_at(url, "script").url == url
    with pytest.raises(UserError, match=f"--server: nothing answers at {url}/models"):
        endpoint_at(url, "tiny")
    with pytest.raises(UserError, match=r"--server: nothing answers at http://127\.0\.0\.1:80a0/v1/models"):
        endpoint_at("http://127.0.0.1:80a0/v1", "tiny")
    with pytest.raises(UserError, match="--server: the address holds a user name or a key") as refused:
        endpoint_at(url.replace("//", "//user:sesame@"), "tiny")
    assert "sesame" not in str(refused.value)


def test_an_interpreter_without_the_packages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no inspect-evals; `make inspect` makes one, and --inspect or SEAL_RAY_"):
        find_interpreter(sys.executable)
    with pytest.raises(UserError, match="is no Python interpreter"):
        find_interpreter(str(tmp_path))


def test_a_run_that_plays_the_user_is_called_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seal_ray.cli.exam.find_interpreter", lambda _: None)
    checkpoint = tmp_path / "mine" / "checkpoints" / "round_000002"
    shutil.copytree(open_model("tiny").path, checkpoint / "model")
    for named, name in ((tmp_path / "mine", "mine"), (checkpoint, "round_000002"), ("tiny", "tiny")):
        how = make_play(str(named), inspect=None, limit=None, categories=(), turns=4, concurrent=2)
        assert how.user.called == name


AIRLINE = ("tiny", "--suite", "tau2-airline")
AGAINST = (*AIRLINE, "--user-model", "openai/gpt-4.1")
REFUSED: dict[tuple[str, ...], str] = {
    AIRLINE: "--user-model: none given",
    (*AIRLINE, "--user-model", "nowhere"): "model: 'nowhere' is no folder",
    (*AGAINST, "--inspect", "nowhere"): "inspect: nowhere is no Python interpreter; `make inspect` makes one",
    (*AGAINST, "--engine", "transformers"): "--engine: in tau2 suites the model is served",
    (*AGAINST, "--temperature", "1"): "--temperature: tau2 suites are played greedily",
    (*AGAINST, "--base", "tiny", "--server", "http://127.0.0.1:1/v1"): "--server: it serves one model",
}


@pytest.mark.parametrize("options", REFUSED, ids=lambda options: " ".join(options[-2:])[:30])
def test_a_mistake_is_one_sentence_before_anything_starts(options: tuple[str, ...], check_refused: Refusal) -> None:
    check_refused("exam", *options, sentence=REFUSED[options])
