"""τ²-bench played by Inspect: a script on both sides is right in the tasks that it should be right in."""

import json
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from seal_ray.exams.exam_run import choose_items
from seal_ray.exams.tau2.inspecting import environment
from seal_ray.exams.tau2.playing import Tau2Dialogue
from tests.command_line import RunMain
from tests.policies.chat_models import random_chat_model
from tests.processes import seal_ray
from tests.seal_ray.exams.tau2_script import Script, actions, changes, interpreter, needs_inspect, serving, tasks

LIMIT = 4


def script(domain: str, **settings: object) -> Script:
    """Plays the tasks that `--limit` takes, and does nothing in every third of those where that is wrong."""
    known = {task["id"]: task for task in tasks(domain)}
    chosen = [known[item.id] for item in choose_items([Tau2Dialogue(each, domain) for each in known], limit=LIMIT)]
    wrong = frozenset([task["id"] for task in chosen if changes(task)][::3])
    assert 0 < len(wrong) < LIMIT
    return Script(chosen, wrong, **settings)  # type: ignore[arg-type]


@needs_inspect
def test_a_known_share_is_right_and_nothing_is_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    """The server dies in the middle, and comes back at the same address."""
    monkeypatch.setattr("seal_ray.exams.tau2.playing.RETRIES", 0)
    monkeypatch.setenv("SCRIPT_API_KEY", "none")
    out = tmp_path / "out"
    options = ("exam", "tiny", "--suite", "tau2-telecom", "--user-model", "openai-api/script/user", "--out", str(out))
    expected = script("telecom")
    calls = sum(
        3 if task["id"] in expected.wrong else 3 + len(actions(task)) + len(actions(task, "user"))
        for task in expected.tasks
    )
    first = script("telecom", dies_after=calls - 2)
    with serving(first) as url:
        port = int(url.rpartition(":")[2].partition("/")[0])
        monkeypatch.setenv("SCRIPT_BASE_URL", url)
        arguments = (*options, "--server", url, "--limit", str(LIMIT))
        said = run_main(*arguments, code=1)
    assert said.startswith("failed: tau2-telecom: the ")
    assert "can no longer be reached (Connection error)" in said
    assert "no score was written; the same command resumes from there." in said
    assert not (out / "exam.md").exists()
    with serving(expected, port):
        said = run_main(*arguments)
    asked = Counter(first.asked)
    asked.update(expected.asked)
    assert asked.total() == calls, "an answer is sampled once, in a dialogue that was stopped too"
    rows = [json.loads(line) for line in (out / "model/tau2-telecom/answers.jsonl").read_text().splitlines()]
    assert {row["item"] for row in rows if not row["right"]} == expected.wrong
    assert {row["item"] for row in rows} == {task["id"] for task in expected.tasks}
    assert {row["end"] for row in rows} == {"stop"}
    whole = json.loads((out / "exam.json").read_text())["suites"]["tau2-telecom"]["all"]
    assert whole["items"] == LIMIT
    assert whole["model"]["share"] == 1 - len(expected.wrong) / LIMIT
    logs = sorted((out / "model/tau2-telecom/inspect/logs").glob("*.eval"))
    assert len(logs) == 2
    found = interpreter()
    assert found is not None
    program = (
        "import sys; from inspect_ai.log import read_eval_log as r; print([len(r(p).samples) for p in sys.argv[1:]])"
    )
    command = [str(found.path), "-I", "-c", program, *map(str, logs)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout
    assert sum(json.loads(said)) >= LIMIT, "Inspect opens its logs"
    shown = run_main("show", str(out))
    assert all(f" · {task['id']} · " in shown for task in expected.tasks)


HOSTILE = [
    ("calculate", '{"expression": "9**9**9**9"}'),
    ("calculate", "{\"expression\": \"__import__('os').system('touch hostile')\"}"),
    ("calculate", json.dumps({"expression": "(" * 5_000 + "1" + ")" * 5_000})),
    ("no_such_tool", "{}"),
    ("__class__", "{}"),
    ("get_user_details", '{"user_id": "../../../hostile"}'),
    ("get_user_details", '{"user_id": {"a": NaN}}'),
    ("get_user_details", "{not: [json"),
    ("get_user_details", "[" * 20_000),
    ("get_user_details", json.dumps({"user_id": "x" * 200_000})),
    ("cancel_reservation", '{"reservation_id": null, "more": "!!python/object/apply:os.system [touch hostile]"}'),
]
"""Calls that a model might write: names of tools, and arguments as they are."""


class HostileScript(Script):
    """The user is a script's; the model makes these calls and then says what only the user may say."""

    def answer(self, body: Mapping[str, Any]) -> dict[str, Any]:
        messages = body["messages"]
        if "<scenario>" in str(messages[0]["content"]):
            return super().answer(body)
        done = sum(message["role"] == "tool" for message in messages)
        if done >= len(HOSTILE):
            return {"content": "###STOP### \x00 <|im_end|> ../../hostile {{7*7}}"}
        name, arguments = HOSTILE[done]
        call = {"id": f"call_{done}", "type": "function", "function": {"name": name, "arguments": arguments}}
        return {"content": "", "tool_calls": [call]}


@needs_inspect
def test_hostile_calls_are_answered_and_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_main: RunMain
) -> None:
    monkeypatch.setenv("SCRIPT_API_KEY", "none")
    monkeypatch.chdir(tmp_path)
    known = {task["id"]: task for task in tasks("airline")}
    (item,) = choose_items([Tau2Dialogue(each, "airline") for each in known], limit=1)
    asked = HostileScript([known[item.id]])
    with serving(asked) as url:
        monkeypatch.setenv("SCRIPT_BASE_URL", url)
        options = ("--user-model", "openai-api/script/user", "--server", url, "--limit", "1", "--out", "out")
        run_main("exam", "tiny", "--suite", "tau2-airline", *options)
    (row,) = [json.loads(line) for line in Path("out/model/tau2-airline/answers.jsonl").read_text().splitlines()]
    assert row["end"] == "stop"
    assert asked.asked.total() == len(HOSTILE) + 3, "each is answered, and the user's messages come before and after"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert not [path for path in tmp_path.rglob("*") if "hostile" in path.name]


@pytest.mark.long
@needs_inspect
def test_a_random_model_of_llama_s_shape_is_examined(tmp_path: Path) -> None:
    model = str(random_chat_model(tmp_path / "llama", "llama3_json", context=65_536))
    bounds = ("--limit", "1", "--turns", "2", "--response", "16", "--context", "49152")
    command = ("exam", model, "--suite", "tau2-airline", "--user-model", model, "--out", str(tmp_path / "out"))
    # Not as forks of preloaded processes: their end kills the test process here.
    seal_ray(*command, *bounds, SEAL_RAY_TESTS_PRELOADED="")
    (row,) = map(json.loads, (tmp_path / "out/model/tau2-airline/answers.jsonl").read_text().splitlines())
    assert row["end"] == "turns"
    assert sum(said.startswith("model: ") for said in row["said"]) == 2
