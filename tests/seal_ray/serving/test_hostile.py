"""A server under attack: other clients are answered meanwhile, and its memory comes back."""

import asyncio
import json
import re
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from policies import tiny
from policies.models import open_model
from seal_ray.serving.prompt import ServedFormat
from tests.conftest import TABLE
from tests.processes import tree
from tests.seal_ray.serving.servers import CONTEXT, KEY, NAME, RESPONSE, Running, joined

pytestmark = pytest.mark.long

HELLO = {"role": "user", "content": "Hello."}
CHAT: dict[str, Any] = {"model": NAME, "messages": [HELLO], "max_tokens": 4}
PATIENCE = 3.0
"""Seconds in which a normal client is answered during an attack: 2 on most machines, more on older ones."""


@pytest.fixture(scope="module", autouse=True)
def warm(server: Running) -> None:
    for _ in range(3):
        assert server.post(CHAT).status_code == 200


@contextmanager
def beside(server: Running) -> Iterator[list[float]]:
    """A client that asks for four tokens again and again; the seconds that each of its answers took."""
    stop, took, failed = threading.Event(), [0.0], []

    def ask() -> None:
        with httpx.Client(timeout=60, headers={"Authorization": f"Bearer {KEY}"}) as client:
            while not stop.is_set():
                begun = time.monotonic()
                chat = {**CHAT, "messages": [{"role": "user", "content": f"Hello {begun}."}]}
                answer = client.post(f"{server.url}/v1/chat/completions", json=chat)
                took.append(time.monotonic() - begun)
                failed.extend([answer.text] if answer.status_code != 200 else [])
                time.sleep(0.02)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        time.sleep(0.2)
        yield took
        time.sleep(0.2)
    finally:
        stop.set()
        thread.join()
    assert not failed


def pairs(count: int, first: str = "Hello.") -> dict[str, Any]:
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}] * count
    return {**CHAT, "messages": [{"role": "user", "content": first}, *chat[1:], HELLO]}


def at_once(count: int, send: Callable[[int], int]) -> list[int]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(send, range(count)))


def posted(server: Running, count: int, body: Callable[[int], Any]) -> list[int]:
    return at_once(count, lambda number: server.post(body(number)).status_code)


def in_schema(number: int) -> dict[str, Any]:
    """A chat whose schema costs nearly as much as any that is served, for each token too."""
    ranges = {f"a{at}": {"type": "integer", "minimum": -at * number, "maximum": 10**9 + at} for at in range(200)}
    costly = {"type": "string", "pattern": f"^.?a?.{{99{number % 10}}}.{{1,999}}[a-m]..$"}
    schema = {"type": "object", "properties": {"a": costly, **ranges}, "required": ["a"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    return {**CHAT, "max_tokens": RESPONSE, "temperature": 1, "seed": number, "response_format": form}


def in_pieces(server: Running) -> int:
    """The status of a body of 100 MB that does not say how long it is."""
    try:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        pieces = iter([b" " * (1 << 20)] * 100)
        return httpx.post(f"{server.url}/v1/chat/completions", content=pieces, headers=headers, timeout=60).status_code
    except httpx.TransportError:  # it was answered before it was sent, and the connection closed
        return 413


def raw(server: Running, body: bytes, length: int) -> socket.socket:
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(head.encode() + body)
    return connection


def slow_readers(server: Running) -> list[int]:
    body = json.dumps({**CHAT, "stream": True, "max_tokens": RESPONSE, "ignore_eos": True}).encode()
    connections = [raw(server, body, len(body)) for _ in range(48)]
    time.sleep(4)
    for each in connections:
        each.close()
    return [200]


def slow_senders(server: Running) -> list[int]:
    connections = [raw(server, b"{", 100_000) for _ in range(200)]
    for _ in range(4):
        time.sleep(0.5)
        for each in connections:
            each.sendall(b" ")
    for each in connections:
        each.close()
    return [200]


ATTACKS: dict[str, tuple[int, Callable[[Running], list[int]]]] = {
    "8,000 pairs": (400, lambda server: posted(server, 4, lambda _: pairs(8_000))),
    "two of 1,000 pairs": (200, lambda server: posted(server, 2, lambda number: pairs(1_000, str(number)))),
    "24 of 700 words, half of them streamed": (
        200,
        lambda server: posted(
            server,
            24,
            lambda n: {**CHAT, "stream": n % 2 == 0, "messages": [{**HELLO, "content": f"{n} " + "word " * 700}]},
        ),
    ),
    "8 MiB of text": (
        400,
        lambda server: posted(server, 4, lambda _: {**CHAT, "messages": [{**HELLO, "content": "word " * 1_600_000}]}),
    ),
    "8 MiB of lists": (400, lambda server: posted(server, 4, lambda _: b"[" + b"[]," * 2_700_000 + b"1]")),
    "60,000 tools": (
        400,
        lambda server: posted(
            server, 2, lambda _: {**CHAT, "tools": [{"type": "function", "function": {"name": "f"}}] * 60_000}
        ),
    ),
    "JSON mode without max_tokens": (
        200,
        lambda server: posted(
            server,
            24,
            lambda seed: {
                **{key: value for key, value in CHAT.items() if key != "max_tokens"},
                "response_format": {"type": "json_object"},
                "temperature": 2,
                "seed": seed,
            },
        ),
    ),
    "24 schemas": (200, lambda server: posted(server, 24, in_schema)),
    "100 MB": (413, lambda server: posted(server, 2, lambda _: b" " * 100_000_000)),
    "100 MB in pieces": (413, lambda server: [in_pieces(server) for _ in range(2)]),
    "clients that do not read": (200, slow_readers),
    "clients that hardly send": (200, slow_senders),
}


def answered_beside(server: Running, title: str, run: Callable[[Running], list[int]], record: Any) -> list[int]:
    """The answers to an attack, after a check that another client did not wait too long.

    A machine that is busy with other tests gets three tries, and time in proportion: a client that stood in line would
    wait as long as the attack takes.
    """
    tries = []
    for _ in range(3):
        begun = time.monotonic()
        with beside(server) as took:
            found = run(server)
        spent = time.monotonic() - begun
        tries.append((max(took), spent))
        if max(took) < max(PATIENCE, spent / 4):
            break
    record(TABLE, f"{title}: {spent:.1f} s, another client {statistics.median(took):.2f} s, {max(took):.2f} at most")
    assert max(took) < max(PATIENCE, spent / 4), tries
    return found


FREQUENT = ("two of 1,000 pairs", "8 MiB of lists", "100 MB in pieces", "clients that do not read")
"""The attacks that are tried by `make test` too."""
RARE = [pytest.param(attack, marks=pytest.mark.only_by(target="long")) for attack in ATTACKS if attack not in FREQUENT]


@pytest.mark.parametrize("attack", [*FREQUENT, *RARE])
def test_a_client_beside_an_attack_is_answered(server: Running, attack: str, record_property: Any) -> None:
    status, run = ATTACKS[attack]
    assert set(answered_beside(server, attack, run, record_property)) == {status}


ENOUGH = {"model": NAME, "max_tokens": 2}
HOSTILE_CHATS: list[dict[str, Any]] = [
    {"n": 1_000},
    {"stop_token_ids": [10**6], "min_tokens": 1},
    {"allowed_token_ids": [10**6]},
    {"logit_bias": {"1000000": 1}},
    {"response_format": {"type": "json_object"}, "bad_words": ["{"]},
    {"tool_choice": "required"},
    {"tools": []},
    {"tool_choice": {"type": "function", "function": {"name": "x"}}},
    {"kv_transfer_params": {"prompt_token_ids": [1]}},
    {"stream": True, "response_format": {"type": "json_schema", "json_schema": {"schema": {"type": "text"}}}},
    {"max_tokens": 10 * CONTEXT},
    {"stream": True, "messages": [{**HELLO, "content": "word " * 2 * CONTEXT}]},
]
HOSTILE_TEXTS: list[dict[str, Any]] = [
    *({"prompt": ["x"] * 10_000}, {"prompt": [10**6]}, {"prompt": ""}, {"prompt": "word " * 100_000}),
]


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        *(({"messages": [HELLO], **more}, "chat/completions") for more in HOSTILE_CHATS),
        *((more, "completions") for more in HOSTILE_TEXTS),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_a_hostile_request_is_a_400(server: Running, fields: dict[str, Any], path: str) -> None:
    answer = server.post({**ENOUGH, **fields}, f"/v1/{path}")
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["message"]


HALF = "a\ud83db"


@pytest.mark.parametrize("stream", [False, True])
def test_half_surrogate_pairs_are_answered_in_valid_unicode(server: Running, stream: bool) -> None:
    tool = {"name": f"f{HALF}", "description": HALF, "parameters": {"type": "object", "properties": {HALF: {}}}}
    call = {"id": "x", "type": "function", "function": {"name": HALF, "arguments": json.dumps({HALF: HALF})}}
    said = '<tool_call>\n{"name": "\\ud83d", "arguments": {"\\ud83d": "\\udc00"}}\n</tool_call>'
    chat = {
        **ENOUGH,
        "messages": [
            {"role": "system", "content": HALF},
            {"role": "user", "content": HALF},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": HALF, "content": HALF},
        ],
        "tools": [{"type": "function", "function": tool}],
        "structured_outputs": {"choice": [said]},
        "max_tokens": 200,
        "stream": stream,
    }
    answer = server.post(json.dumps(chat).encode())
    assert answer.status_code == 200, answer.text
    text = answer.content.decode()
    assert "[DONE]" in text if stream else answer.json()["choices"][0]["message"]
    assert '"error"' not in text
    parts = (
        [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        if stream
        else [answer.json()]
    )
    for part in parts:
        json.dumps(part, ensure_ascii=False).encode()


@pytest.mark.parametrize("stream", [False, True])
def test_control_tokens_are_not_sampled_in_structured_answers(server: Running, stream: bool) -> None:
    folder = open_model(tiny.NAME)
    form = ServedFormat.load(folder.path, folder.dialect)
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    chat: dict[str, Any] = {
        **CHAT,
        "max_tokens": 64,
        "temperature": 2,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
        "logit_bias": {str(token): 100 for token in form.unspoken},
        "extra_body": {"return_token_ids": True},
    }
    sampled: list[int] = []
    with server.client() as client:
        for seed in range(6):
            if not stream:
                answer: Any = client.chat.completions.create(**chat, seed=seed)
                sampled += answer.choices[0].token_ids
                continue
            with client.chat.completions.create(**chat, seed=seed, stream=True) as chunks:
                parts = list(chunks)
            assert joined(parts)["content"]
            choices = [each for part in parts for each in part.choices]
            sampled += [token for each in choices for token in getattr(each, "token_ids", None) or ()]
    assert len(sampled) > 64
    assert not form.unspoken & set(sampled)


def test_an_answer_has_so_many_tokens_at_most_whatever_is_asked_for(server: Running) -> None:
    asked = {**CHAT, "ignore_eos": True, "messages": [HELLO]}
    del asked["max_tokens"]
    for more in ({}, {"max_tokens": 10_000}):
        usage = server.post({**asked, **more}).json()["usage"]
        assert usage["completion_tokens"] == RESPONSE, more


def flood(server: Running) -> list[int]:
    """The statuses of a thousand small requests that are sent at once, by a client that costs little itself."""

    async def ask(number: int) -> int:
        body = json.dumps({**CHAT, "messages": [{**HELLO, "content": f"Hey {number}."}]}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(head.encode() + body)
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1])

    async def ask_all() -> list[int]:
        return await asyncio.gather(*map(ask, range(1_000)))

    return asyncio.run(ask_all())


@pytest.mark.only_by(target="long")
def test_a_thousand_at_once_hold_nobody_up(server: Running, record_property: Any) -> None:
    assert set(answered_beside(server, "1,000 small requests", flood, record_property)) == {200}


@pytest.mark.only_by(target="long")
def test_memory_comes_back(server: Running, record_property: Any) -> None:
    def held() -> float:
        return sum(_resident(pid) for pid in tree(server.process.pid)) / 2**20

    before = held()
    for _ in range(2):
        ATTACKS["8 MiB of text"][1](server)
        ATTACKS["8 MiB of lists"][1](server)
        ATTACKS["100 MB"][1](server)
    time.sleep(2)
    after = held()
    record_property(TABLE, f"memory: {before:,.0f} MiB before, {after:,.0f} MiB after")
    assert after - before < 400


def _resident(pid: int) -> int:
    try:
        return int(re.findall(r"RssAnon:\s*(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) * 1024
    except (OSError, IndexError):
        return 0
