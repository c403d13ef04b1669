"""A served model as its clients meet it: a real Serve instance on CPU, asked by OpenAI's own client.

The server is the one that `test_hostile.py` has attacked before; the last tests kill its replica, and stop it.
"""

import json
import os
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from envs.bfcl.source import REGISTERED
from envs.dialogue import Dialogue
from envs.toolworld import generate
from policies import tiny
from policies.engine import Adapter
from policies.models import open_model
from policies.prompting import ChatFormat
from policies.trajectory import End
from seal_ray.report.files import JsonLines
from tests.conftest import TABLE
from tests.policies.models import greedy, load, load_adapted
from tests.processes import seal_ray, title, tree
from tests.readme import example
from tests.seal_ray.evaluation.grading import bfcl, official_failures
from tests.seal_ray.serving.servers import CONTEXT, KEY, NAME, RESPONSE, Running, joined, wait_for_end
from tests.watched import leaking_commands, leaking_files, open_addresses

pytestmark = pytest.mark.long

CLIENTS = 64
DIALOGUES = 15
REPLICA = "Server:" + NAME.replace("/", "--")
FIRST = "Which files are here?"
TOOLS = [{"type": "function", "function": dict(tool.document)} for tool in generate(0, split="dev").tools]
NAMES = {tool.name for tool in generate(0, split="dev").tools}
CHAT: dict[str, Any] = {
    "model": NAME,
    "messages": [{"role": "user", "content": FIRST}],
    "tools": TOOLS,
    "temperature": 0,
    "max_tokens": RESPONSE,
}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Dialogues that the project's evaluator played greedily."""
    out = tmp_path_factory.mktemp("evaluated")
    kinds = ("--category", "base", "--category", "miss_param", "--category", "long_context")
    command = example(".venv/bin/seal-ray", "evaluate", "--limit", "20")
    return evaluate(out / "toolworld", *command, *kinds, "--limit", str(DIALOGUES))


def evaluate(out: Path, *command: str) -> list[dict[str, Any]]:
    seal_ray(*command, "--context", str(CONTEXT), "--response", str(RESPONSE), "--out", str(out))
    return JsonLines(out / "trajectories.jsonl").rows()


def test_it_is_healthy_and_lists_its_models(server: Running) -> None:
    assert httpx.get(f"{server.url}/-/healthz").status_code == 200
    with server.client() as client:
        assert {model.id for model in client.models.list()} == {NAME, "other"}
        assert client.models.retrieve("other").id == "other"
    assert "with the key" in server.log.read_text()


def test_it_leaks_no_key_and_listens_at_loopback(server: Running) -> None:
    pids = tree(server.process.pid)
    assert not leaking_commands(pids)
    assert not leaking_files(server.temporary, server.log.parent)
    assert not open_addresses(pids)
    assert list(server.temporary.glob("ray-*/r/session_latest/logs/serve/*.log"))


def test_the_readme_s_request_is_answered(server: Running, tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text(f"Authorization: Bearer {KEY}\n", "ascii")
    places = {"http://127.0.0.1:8000": server.url, "$HOME/.seal-ray-header": str(headers), '"NAME"': json.dumps(NAME)}
    done = subprocess.run(["curl", "-sS", *example("curl", but=places)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["choices"][0]["message"]["role"] == "assistant"


def test_messages_and_calls_make_the_round_trip_streamed_and_whole(server: Running) -> None:
    with server.client() as client:
        whole = client.chat.completions.create(**CHAT).choices[0]
        with client.chat.completions.create(**CHAT, stream=True) as chunks:
            stream = joined(chunks)
        assert whole.finish_reason == stream["finish"] == "tool_calls"
        calls = whole.message.tool_calls or []
        assert [(call.function.name, call.function.arguments) for call in calls] == stream["calls"]
        assert calls[0].function.name in NAMES
        assert isinstance(json.loads(calls[0].function.arguments), dict)
        assert (whole.message.content or "") == stream["content"]
        more = [whole.message.model_dump(exclude_none=True)]
        more += [{"role": "tool", "tool_call_id": calls[0].id, "content": '{"files": ["a.txt"]}'}]
        answer = client.chat.completions.create(**{**CHAT, "messages": CHAT["messages"] + more}).choices[0]
        assert answer.message.content or answer.message.tool_calls


def test_served_dialogues_are_the_evaluator_s_token_for_token(
    server: Running, evaluated: list[dict[str, Any]], record_property: Any
) -> None:
    folder = open_model(tiny.NAME)
    form = ChatFormat.load(folder.path, folder.dialect)
    assert len(evaluated) == DIALOGUES
    with server.client() as client, ThreadPoolExecutor(8) as pool:
        compared = sum(pool.map(lambda row: replayed(row, client, form), evaluated))
    record_property(TABLE, f"{DIALOGUES} dialogues, {compared} sampled tokens: served = evaluated")


def replayed(row: dict[str, Any], client: openai.OpenAI, form: ChatFormat) -> int:
    """Plays a dialogue again with the server, whose tokens must be the evaluator's. Returns how many were sampled."""
    task = generate(int(row["task"].rsplit("_", 1)[1]), split="dev")
    dialogue = Dialogue(task, dialect=form.dialect)
    _, info = dialogue.reset()
    tools = [{"type": "function", "function": dict(tool.document)} for tool in info["tools"]]
    messages: list[Any] = []
    compared = 0
    for begin, end, _ in row["sampled"]:
        messages += [{"role": each.role, "content": each.content, "tool_call_id": "x"} for each in info["messages"]]
        chat = {**CHAT, "messages": messages, "tools": tools, "extra_body": {"return_token_ids": True}}
        prompt, sampled, message = (streamed if row["seed"] % 2 else whole)(client, chat)
        assert prompt == row["token_ids"][:begin], row["task"]
        assert sampled == row["token_ids"][begin:end], row["task"]
        compared += len(sampled)
        messages.append(message)
        if end < len(row["token_ids"]) or row["end"] == End.FINISHED:  # what was cut off is not acted on
            *_, info = dialogue.step(form.text(sampled))
    assert dialogue.over == (row["end"] == End.FINISHED)
    assert float(dialogue.success) == row["reward"]
    return compared


def whole(client: openai.OpenAI, chat: dict[str, Any]) -> tuple[list[int], list[int], dict[str, Any]]:
    """Tokens of the prompt, of the answer, and the answer as a message to send back."""
    answer: Any = client.chat.completions.create(**chat)
    (choice,) = answer.choices
    return answer.prompt_token_ids, choice.token_ids, choice.message.model_dump(exclude_none=True)


def streamed(client: openai.OpenAI, chat: dict[str, Any]) -> tuple[list[int], list[int], dict[str, Any]]:
    prompt: list[int] = []
    sampled: list[int] = []
    parts: list[Any] = []
    with client.chat.completions.create(**chat, stream=True) as chunks:
        for chunk in chunks:
            parts.append(chunk)
            prompt += getattr(chunk, "prompt_token_ids", None) or []
            sampled += [token for choice in chunk.choices for token in getattr(choice, "token_ids", None) or []]
    found = joined(parts)
    calls = [
        {"id": "x", "type": "function", "function": {"name": name, "arguments": arguments}}
        for name, arguments in found["calls"]
    ]
    return prompt, sampled, {"role": "assistant", "content": found["content"], "tool_calls": calls}


def test_an_adapter_answers_for_itself_beside_the_base(server: Running, learnt: Adapter) -> None:
    base = open_model(tiny.NAME).path
    chat = {**CHAT, "max_tokens": 16, "extra_body": {"return_token_ids": True, "ignore_eos": True}}
    with server.client() as client, ThreadPoolExecutor(16) as pool:
        answers: list[Any] = list(
            pool.map(lambda name: client.chat.completions.create(**{**chat, "model": name}), [NAME, "other"] * 8)
        )
    prompt = answers[0].prompt_token_ids
    wanted = [greedy(model, prompt, 16) for model in (load(base), load_adapted(base, learnt))]
    assert wanted[0] != wanted[1]
    assert [answer.choices[0].token_ids for answer in answers] == wanted * 8


@pytest.mark.only_by(target="clients")
def test_bfcl_s_own_client_plays_as_the_evaluator_does_and_gets_its_verdicts(server: Running, tmp_path: Path) -> None:
    out, results = tmp_path / "bfcl", tmp_path / "results"
    command = example(".venv/bin/seal-ray", "evaluate", "--env", "bfcl", but={"runs/bfcl": str(results)})
    played = evaluate(out, *command, "--split", "dev", "--limit", "8")
    summary = json.loads((out / "summary.json").read_text("utf-8"))
    assert summary["results"]["all"]["dialogues"] == len(played) == 8
    assert set(summary["results"]) == {"base", "miss_func", "miss_param", "long_context", "all"}
    assert summary["settings"]["engine"] == "vllm"

    asked: dict[str, list[str]] = {}
    for row in played:
        asked.setdefault(row["task"].rsplit("_", 1)[0], []).append(row["task"])
    (tmp_path / "test_case_ids_to_generate.json").write_text(json.dumps(asked), "utf-8")
    environment = {"OPENAI_BASE_URL": f"{server.url}/v1", "OPENAI_API_KEY": KEY}
    bfcl(
        *("generate", "--model", NAME, "--run-ids", "--num-threads", "8", "--temperature", "0"),
        *("--result-dir", str(results), "--exclude-state-log"),
        root=tmp_path,
        environment=environment,
    )
    failed = {row["task"] for row in played if not row["reward"]}
    names = (REGISTERED["qwen"], NAME)
    graded = official_failures(results, names, tmp_path / "scores", environment=environment)
    assert graded == dict.fromkeys(names, failed)
    # The small model solves none of them. What its first turn called is the same, and says more than the verdict.
    files = (results / NAME.replace("/", "_")).rglob("*_result.json")
    rows = [json.loads(line) for file in files for line in file.read_text("utf-8").split("\n")[:-1]]
    official = {row["id"]: calls_of(row["result"][0]) for row in rows}
    dialect = open_model(tiny.NAME).dialect
    ours = {
        row["task"]: [
            (call.name, dict(call.arguments))
            for step in row["turns"][0]["steps"]
            for call in dialect.parse(step["completion"]).official_calls
        ]
        for row in played
    }
    assert any(ours.values())
    assert official == ours


def calls_of(steps: list[Any]) -> list[tuple[str, Any]]:
    """(name, arguments) of each call of a turn in an official result file, whose other steps are texts."""
    calls = [call for step in steps if isinstance(step, list) for call in step]
    return [(name, json.loads(arguments)) for call in calls for name, arguments in call.items()]


def test_a_call_can_be_required(server: Running) -> None:
    place = {"type": "string", "format": "path", "pattern": "^/[a-c]{2}$"}
    parameters = {"type": "object", "properties": {"place": place}, "required": ["place"]}
    tool = {"name": "ls", "description": "List.", "strict": True, "parameters": parameters}
    chat = {**CHAT, "tools": [{"type": "function", "function": tool}], "tool_choice": "required"}
    with server.client() as client:
        (call,) = client.chat.completions.create(**chat).choices[0].message.tool_calls or []
    assert call.function.name == "ls"
    assert len(json.loads(call.function.arguments)["place"]) == 3


def test_a_response_and_several_greedy_answers_are_the_chat_s(server: Running) -> None:
    with server.client() as client:
        chats = client.chat.completions.create(**{**CHAT, "n": 2, "tools": openai.NOT_GIVEN}).choices
        sent: dict[str, Any] = {"model": NAME, "input": FIRST, "temperature": 0, "max_output_tokens": RESPONSE}
        whole = client.responses.create(**sent)
        with client.responses.stream(**sent) as events:
            final = events.until_done().get_final_response()
    assert {each.message.content for each in chats} == {whole.output_text} == {final.output_text}


@pytest.mark.parametrize("header", [None, "Bearer wrong", "Bearer s\u00e9same"])
def test_without_the_key_nothing_is_answered(server: Running, header: str | None) -> None:
    headers = {} if header is None else {b"Authorization": header.encode("utf-8")}
    for answer in (
        server.post(CHAT, headers=headers),
        httpx.get(f"{server.url}/v1/models", headers=headers),
        httpx.get(f"{server.url}/nothing", headers=headers),
    ):
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"


def test_openai_s_client_knows_the_errors(server: Running) -> None:
    with server.client("wrong") as client, pytest.raises(openai.AuthenticationError):
        client.chat.completions.create(**CHAT)
    with server.client() as client:
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(**{**CHAT, "model": "nothing"})
        with pytest.raises(openai.BadRequestError, match="an answer needs"):
            client.chat.completions.create(**{**CHAT, "messages": []})


def test_a_client_is_told_in_openais_words_what_does_not_fit(server: Running) -> None:
    long = "word " * 2 * CONTEXT
    chat = {**CHAT, "messages": [{"role": "user", "content": long}]}
    for body, path, param in (
        (chat, "chat/completions", "messages"),
        ({"model": NAME, "prompt": long}, "completions", "prompt"),
    ):
        answer = server.post(body, f"/v1/{path}")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded"), answer.text
        assert error["message"].startswith(f"{param}: "), answer.text


def test_an_answer_ends_where_the_context_does(server: Running) -> None:
    """A prompt that leaves less room than `max_tokens` asks for."""
    with server.client() as client:
        prompt, more = [7] * (CONTEXT - 20), {"ignore_eos": True}
        answer = client.completions.create(model=NAME, prompt=prompt, max_tokens=RESPONSE, extra_body=more)
    assert (answer.usage.completion_tokens, answer.choices[0].finish_reason) == (20, "length")


def test_what_is_too_large_or_not_there_is_refused(server: Running) -> None:
    large = server.post(b" " * ((8 << 20) + 1))
    assert large.status_code == 413
    assert large.json()["error"]["message"].startswith("the request is too large")
    colon = server.post({**CHAT, "model": f"{NAME}:latest"})
    assert (colon.status_code, colon.json()["error"]["code"]) == (404, "model_not_found")
    assert server.post(CHAT, "/v1/nothing").status_code == 404
    assert server.post(CHAT, "/v1/nothing").json()["error"]["message"]


def test_many_clients_at_once_are_all_answered(server: Running, record_property: Any) -> None:
    begun = time.monotonic()
    with server.client() as client, ThreadPoolExecutor(CLIENTS) as pool:

        def ask(number: int) -> Any:
            chat = {**CHAT, "messages": [{"role": "user", "content": f"{FIRST} {number}"}], "temperature": 1}
            chat["seed"] = number
            if number % 2:
                return client.chat.completions.create(**chat).usage.completion_tokens
            with client.chat.completions.create(**chat, stream=True, stream_options={"include_usage": True}) as chunks:
                return [chunk.usage for chunk in chunks if chunk.usage][-1].completion_tokens

        tokens = list(pool.map(ask, range(2 * CLIENTS)))
    took = time.monotonic() - begun
    assert all(tokens)
    record_property(
        TABLE,
        f"{len(tokens)} requests of {CLIENTS} clients: {sum(tokens)} tokens in {took:.1f} s "
        f"({sum(tokens) / took:,.0f} tokens/s, {len(tokens) / took:.1f} requests/s), none failed",
    )


def test_clients_that_go_away_do_not_hold_up_others(server: Running) -> None:
    endless = {**CHAT, "max_tokens": CONTEXT // 2, "stream": True, "extra_body": {"ignore_eos": True}}
    with server.client() as client, ThreadPoolExecutor(CLIENTS) as pool:

        def begin(_: int) -> None:
            with client.chat.completions.create(**endless) as chunks:
                next(iter(chunks))

        list(pool.map(begin, range(CLIENTS)))
        begun = time.monotonic()
        client.chat.completions.create(**{**CHAT, "max_tokens": 4})
        assert time.monotonic() - begun < 15


@pytest.mark.only_by(target="long")
def test_after_a_replica_was_killed_under_load_requests_are_answered_again(
    server: Running, record_property: Any
) -> None:
    stop = threading.Event()
    failed: list[int] = []
    answered: list[int] = []

    def load() -> None:
        while not stop.is_set():
            answer = server.post(CHAT)
            (answered if answer.status_code == 200 else failed).append(answer.status_code)
            if answer.status_code != 200:
                assert answer.json()["error"]["message"]
                time.sleep(0.5)

    (replica,) = server.replicas(REPLICA)
    with ThreadPoolExecutor(8) as pool:
        clients = [pool.submit(load) for _ in range(8)]
        try:
            time.sleep(2)
            below = {pid: title(pid) for pid in tree(replica)}
            os.kill(replica, signal.SIGKILL)
            killed, before = time.monotonic(), len(answered)
            while len(answered) < before + 16:
                assert time.monotonic() < killed + 300, failed
                assert not all(each.done() for each in clients), clients[0].exception()
                time.sleep(0.1)
            back = time.monotonic() - killed
        finally:
            stop.set()
        for each in clients:
            each.result()
        assert [server.post(CHAT).status_code for _ in range(16)] == [200] * 16
    assert server.replicas(REPLICA) != [replica]
    assert any("EngineCore" in each for each in below.values()), below
    assert not [pid for pid, name in below.items() if title(pid) == name], below
    record_property(TABLE, f"killed under load: statuses {failed} of 8 clients; answers again after {back:.0f} s")


def test_ctrl_c_stops_it_and_leaves_no_process(server: Running) -> None:
    below, said = tree(server.process.pid), server.log.read_text()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(120) == 0
    assert server.log.read_text()[len(said) :] == "stopped\n"
    assert not wait_for_end(below)
    assert not list(server.temporary.glob("ray-*"))
