"""What requests may ask for: hostile ones are refused by name, quickly, and before anything else sees them."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from policies.models import open_model
from seal_ray.serving.admission import CHAT, COMPLETIONS, Intake
from seal_ray.serving.limits import NoPlace, RefusedRequest, RequestLimits, read_body
from seal_ray.serving.prompt import ServedFormat
from seal_ray.serving.queues import Places, ReadingQueue
from seal_ray.serving.request_models import parse_request

LIMITS = RequestLimits(body_bytes=8 << 20, messages=100, tools=10, context=1_000)
HELLO = {"role": "user", "content": "Hello."}
TOOL = {"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}


CALL = {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}}


STEERING = ("kv_transfer_params", "vllm_xargs", "priority", "request_id", "cache_salt", "chat_template", "best_of")
HOSTILE: dict[str, Any] = {
    "messages": [
        *(None, "Hello.", {}, [None], [[]], [{"role": []}], [{"role": "\ud83d"}], [HELLO] * 101),
        [{"role": "user", "content": 7}],
    ],
    "tools": [{}, [None], [{"function": {}}], [TOOL] * 11, [{"type": "function", "function": {"name": ""}}]],
    "tool_choice": ["all", 7, {"type": "function"}, {"type": "function", "function": {"name": []}}],
    "n": [0, -1, 9, 1_000, 10**400, "1", True, 1.5],
    "max_tokens": [0, -5, 1_001, 10**30, "many"],
    "max_completion_tokens": [-1, 10**9],
    "min_tokens": [-1, 10**9],
    "temperature": ["hot", -1, 1e300, 10**400, True, []],
    "top_p": [-1, 2],
    "top_k": [-2, 10**9, 0.5],
    "seed": [2**63, "x"],
    "repetition_penalty": [0, -1, 1e-300],
    "logprobs": [10**9, "yes"],
    "top_logprobs": [10**9, -1, 21],
    "prompt_logprobs": [1],
    "logit_bias": [[], {"x": 1}, {"1": "x"}, {"1": 101}, {"-1": 1}, {str(index): 1 for index in range(301)}],
    "stop": [7, [""], ["x"] * 17, ["x" * 201], [[]]],
    "stop_token_ids": [[-1], [2**40], [1] * 17, ["x"]],
    "allowed_token_ids": [[1] * 5_000, [-1]],
    "bad_words": [["x"] * 17, [""], "x"],
    "response_format": [7, {}, {"type": "structural_tag"}, {"type": "json_schema"}, {"type": "regex"}],
    "structured_outputs": [
        *({}, {"regex": "(a{1,1000}){1,1000}"}, {"grammar": "root ::= root"}, {"structural_tag": "{}"}, {"json": "{"}),
        *({"choice": ["x"] * 257}, {"json_object": True, "choice": ["x"]}, {"json_object": False}, {"choice": "x"}),
        # Schemas as text have the bounds of others, and are not parsed before.
        *({"json": '{"a": "%s"}' % ("x" * 70_000)}, {"json": '{"a": "\ud83d", "b": NaN}'}, {"json": "[" * 60_000}),
        *({"json": '{"a":' * levels + "1" + "}" * levels} for levels in (25, 65, 990, 1_100)),
    ],
    "stream": ["yes"],
    "stream_options": [7, {"include_usage": "yes"}],
    # What steers vLLM rather than an answer.
    **{name: [{"a": 1}] for name in STEERING},
}
CASES = [(name, value) for name, values in HOSTILE.items() for value in values]


@pytest.mark.parametrize(("name", "value"), CASES, ids=[f"{name}-{str(value)[:30]!r}" for name, value in CASES])
def test_a_field_that_is_not_served_or_out_of_bounds_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(RefusedRequest, match=name) as refused:
        parse_request({"messages": [HELLO], name: value}, chat=True, limits=LIMITS)
    assert refused.value.status == 400
    str(refused.value).encode()


@pytest.mark.parametrize(
    "prompt", [[], 7, [""], ["x"] * 9, [[1]] * 10_000, [1] * 1_001, [[]], [[[1]]], [1, "x"], [-1], [2**40], {"a": 1}]
)
def test_a_prompt_that_is_none_is_refused(prompt: Any) -> None:
    with pytest.raises(RefusedRequest, match="prompt"):
        parse_request({"prompt": prompt}, chat=False, limits=LIMITS)


def test_a_model_with_a_colon_is_not_there() -> None:
    with pytest.raises(RefusedRequest, match="model: 'tiny:latest' is not served") as refused:
        parse_request({"model": "tiny:latest", "messages": [HELLO]}, chat=True, limits=LIMITS)
    assert (refused.value.status, refused.value.code) == (404, "model_not_found")


@pytest.mark.parametrize("given", [{}, {"parameters": None}, {"parameters": {}}, {"parameters": {"type": "object"}}])
def test_a_tool_without_arguments_needs_no_parameters(given: dict[str, Any]) -> None:
    tool = {"type": "function", "function": {"name": "ls", **given}}
    found = parse_request({"messages": [HELLO], "tools": [tool]}, chat=True, limits=LIMITS)
    assert found["tools"] == [TOOL]
    form = ServedFormat.load(open_model("tiny").path, open_model("tiny").dialect)
    assert form.prompt([HELLO], [found["tools"][0]["function"]])


def test_values_of_any_kind_are_counted() -> None:
    for value in ("1", '"x"', "[]", '{"a": 1}'):
        within, beyond = (b"[" + b",".join([value.encode()] * count) + b"]" for count in (40_000, 100_001))
        assert isinstance(read_body(within), list)
        with pytest.raises(RefusedRequest, match="too many values"):
            read_body(beyond)
    for text in (",[{" * 100_000, 'say "a, b, [c], {d}" ' * 300_000):
        assert read_body(json.dumps([text]).encode()) == [text], "text is one value, however long"


def test_what_clients_send_goes_through() -> None:
    sent = {
        "model": "m",
        "messages": [
            {**HELLO, "name": "x"},
            {"role": "assistant", "content": None, "refusal": None, "tool_calls": [{**CALL, "index": 0}]},
            {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": text} for text in "ab"]},
        ],
        "tools": [{"type": "function", "function": {**TOOL["function"], "strict": True, "response": {"a": 1}}}],  # type: ignore[dict-item]
        "temperature": 0,
        "store": False,
        "max_tokens": None,
        "stream_options": {"include_usage": True, "include_obfuscation": False},
    }
    found = parse_request(sent, chat=True, limits=LIMITS)
    assert found["messages"][2] == {"role": "tool", "tool_call_id": "a", "content": "a\nb"}
    assert found["tools"][0]["function"] == {**TOOL["function"], "response": {"a": 1}}  # type: ignore[dict-item]
    assert set(found) == {"model", "messages", "tools", "temperature", "stream_options"}


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"\xff", b"{", b"[" * 10_000, b'{"a":' * 10_000, b"NaN", b'{"a": -Infinity}', b"1" * 5_000, b'"\\'),
        *("{}".encode("utf-16"), b"[" + b"[]," * 2_700_000 + b"1]", b'["' + b'","' * 2_700_000 + b'"]'),
        *(b"[" + b"1," * 4_100_000 + b"1]", b'"' + b'\\"' * 4_000_000, b'"' + b'\\"' * 4_000_000 + b"\\"),
        b"{" + b'"a":1,' * 1_300_000 + b'"a":1}',
    ],
    ids=lambda body: f"{len(body)} of {body[:8]!r}",
)
def test_a_body_that_costs_too_much_to_read_is_refused_quickly(body: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(RefusedRequest):
        parse_request(read_body(body), chat=True, limits=LIMITS)
    assert time.process_time() - begun < 1


async def echoed(request: Request) -> JSONResponse:
    return JSONResponse({"headers": sorted(request.headers), "body": await request.json()})


def client(root_path: str = "") -> TestClient:
    app = Starlette(routes=[Route(path, echoed, methods=["POST"]) for path in (CHAT, COMPLETIONS)])
    app.add_middleware(Intake, limits=LIMITS, places=Places(2, waiting=2))
    return TestClient(app, root_path=root_path)


def test_an_error_is_openai_s_and_headers_that_steer_are_left_behind() -> None:
    with client() as asking:
        many = asking.post(CHAT, json={"messages": [HELLO] * 101})
        assert many.status_code == 400
        assert many.json()["error"]["code"] == "too_many_messages"
        assert many.json()["error"]["param"] == "messages"
        steering = {"X-Vllm-Priority": "-9", "X-Request-Id": "x", "X-Session-Id": "y"}
        answer = asking.post(CHAT, json={"messages": [HELLO]}, headers=steering)
        assert answer.json()["body"] == {"messages": [HELLO]}
        assert set(answer.json()["headers"]) == {"host", "user-agent", "accept", "content-type", "content-length"}
        # A web page may send such a body to another origin without asking.
        assert asking.post(CHAT, content=b"{}", headers={"Content-Type": "text/plain"}).status_code == 400


def test_the_limits_hold_below_a_prefix() -> None:
    """Serve leaves the path as it came, and says below which prefix an application is mounted."""
    with client(root_path="/qwen") as asking:
        for path in (CHAT, f"/qwen{CHAT}"):
            refused = asking.post(path, json={"messages": [HELLO], "priority": [-5]})
            assert refused.status_code == 400
            assert refused.json()["error"]["param"] == "priority"
            answer = asking.post(path, json={"messages": [HELLO]}, headers={"X-Request-Id": "x"})
            assert "x-request-id" not in answer.json()["headers"]


@pytest.mark.anyio
async def test_a_body_that_never_arrives_is_given_up() -> None:
    sent: list[Any] = []

    async def never() -> Any:
        await asyncio.sleep(60)

    async def send(message: Any) -> None:
        sent.append(message)

    async def unreachable(*_: Any) -> None:
        raise AssertionError

    intake = Intake(unreachable, limits=LIMITS, places=Places(1, waiting=1), seconds=0.1)
    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [(b"content-type", b"application/json")]}
    await intake(scope, never, send)
    assert sent[0]["status"] == 408


async def passes(enter: Callable[[], Any], order: list[str], name: str) -> None:
    async with enter():
        order.append(name)
        await asyncio.sleep(0)


@pytest.mark.anyio
async def test_a_free_place_goes_by_turns_to_the_newest_and_the_oldest() -> None:
    order: list[str] = []
    places = Places(1, waiting=4)
    async with places.one():
        tasks = [asyncio.ensure_future(passes(places.one, order, name)) for name in "abcd"]
        await asyncio.sleep(0)
        with pytest.raises(NoPlace):
            await places.one().__aenter__()
        tasks[3].cancel()  # a client that goes away
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    async with places.one():  # and no place is lost
        assert order == ["c", "a", "b"]


@pytest.mark.anyio
async def test_those_that_come_first_leave_the_others_a_place_in_four() -> None:
    order: list[str] = []
    places = Places(1, waiting=20)
    async with places.one():
        enter = {"first": lambda: places.one(first=True), "other": places.one}
        tasks = [asyncio.ensure_future(passes(enter[name], order, name)) for name in ["first"] * 9 + ["other"] * 3]
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    assert order == [*["first"] * 3, "other"] * 3


@pytest.mark.anyio
async def test_short_prompts_are_read_together_and_long_ones_alone() -> None:
    order: list[str] = []
    reading = ReadingQueue(100)
    async with reading.turn(60), reading.turn(40):
        tasks = [asyncio.ensure_future(passes(lambda: reading.turn(10_000), order, name)) for name in "abc"]
        await asyncio.sleep(0)
        assert not order
        tasks[0].cancel()
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(5), reading.turn(100):
        assert order == ["b", "c"]
