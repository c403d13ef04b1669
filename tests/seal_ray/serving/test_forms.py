"""OpenAI's other forms of a request: its own client sends them, and gets its answers in the same form."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI
from openai.types import completion_create_params
from openai.types.chat import completion_create_params as chat_create_params
from openai.types.responses import Response, response_create_params
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.responses import Response as HTTPResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from seal_ray.serving.admission import CHAT, Intake
from seal_ray.serving.forms import OLD_FIELDS
from seal_ray.serving.limits import RefusedRequest
from seal_ray.serving.queues import Places
from seal_ray.serving.request_models import FIXED, IGNORED, ChatFields, CompletionFields, parse_request
from seal_ray.serving.responses import RESPONSE_IGNORED, ResponseFields
from tests.seal_ray.serving.test_limits import HELLO, LIMITS, TOOL

PAGE = (Path(__file__).parents[3] / "docs" / "serving.md").read_text("utf-8")
CUSTOM = {"type": "custom", "custom": {"name": "run", "description": "Runs it.", "format": {"type": "text"}}}
FLAT = {"type": "function", **TOOL["function"], "strict": True}  # type: ignore[dict-item]
CALLS = [
    {"id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    for index, (name, arguments) in enumerate([("ls", {}), ("run", {"input": "x = 1"})])
]
USAGE = {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


class Replica:
    """Answers every chat with the same text, thoughts and calls, as a replica does, and remembers what it got."""

    def __init__(self, *, calls: int = 2, finish: str = "tool_calls", fault: bool = False) -> None:
        self.message: dict[str, Any] = {"role": "assistant", "content": "Let me look.", "tool_calls": CALLS[:calls]}
        self.finish = finish
        self.fault = fault
        self.got: dict[str, Any] = {}
        app = Starlette(routes=[Route(CHAT, self.answer, methods=["POST"])])
        app.add_middleware(Intake, limits=LIMITS, places=Places(2, waiting=2))
        http = TestClient(app, base_url="http://test")
        self.client = OpenAI(base_url="http://test/v1", api_key="x", max_retries=0, http_client=http)

    async def answer(self, request: Request) -> HTTPResponse:
        self.got = await request.json()
        common = {"id": "x", "created": 1, "model": "served", "usage": USAGE}
        choice = {"index": 0, "finish_reason": self.finish}
        if self.got.get("stream"):
            chunks = [
                {**common, "usage": None, "object": "chat.completion.chunk", "choices": [{**choice, **more}]}
                for more in self.parts()
            ]
            return StreamingResponse(self.events([*chunks, {**common, "choices": []}]), media_type="text/event-stream")
        whole = {**self.message, "reasoning_content": "Hmm."}
        return JSONResponse({**common, "object": "chat.completion", "choices": [{**choice, "message": whole}]})

    def parts(self) -> Iterator[dict[str, Any]]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, {"reasoning_content": "Hmm."}]
        deltas += [{"content": text} for text in ("Let me ", "look.")]
        deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(self.message["tool_calls"])]
        yield from ({"delta": delta, "finish_reason": None} for delta in deltas)
        yield {"delta": {}}

    def events(self, chunks: list[dict[str, Any]]) -> Iterator[str]:
        text = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks[: 2 if self.fault else None])
        text += 'data: {"error": {"message": "the engine died", "code": 500}}\n\n' if self.fault else ""
        text += "data: [DONE]\n\n"
        yield from (text[begin : begin + 50] for begin in range(0, len(text), 50))  # packets end anywhere

    def chat(self, **fields: Any) -> tuple[Any, list[Any]]:
        """The whole answer, and the chunks of the same as a stream."""
        sent: dict[str, Any] = {"model": "m", "messages": [HELLO], **fields}
        whole = self.client.chat.completions.create(**sent)
        return whole.choices[0], [
            chunk.choices[0] for chunk in self.client.chat.completions.create(**sent, stream=True) if chunk.choices
        ]


@pytest.mark.parametrize("choice", ["auto", "none", {"name": "ls"}])
def test_functions_become_tools_and_a_call_comes_back_as_the_function_s(choice: Any) -> None:
    replica = Replica()
    whole, chunks = replica.chat(functions=[TOOL["function"]], function_call=choice)
    named = {"type": "function", "function": choice} if isinstance(choice, dict) else choice
    assert (replica.got["tools"], replica.got["tool_choice"]) == ([TOOL], named)
    assert replica.got["parallel_tool_calls"] is False
    deltas = [chunk.delta.function_call for chunk in chunks if chunk.delta.function_call]
    for call in (whole.message.function_call, *deltas[:1]):
        assert (call.name, call.arguments) == ("ls", "{}")
    assert whole.message.tool_calls is None
    assert not any(chunk.delta.tool_calls for chunk in chunks)
    assert {whole.finish_reason, chunks[-1].finish_reason} == {"function_call"}
    assert whole.message.content == "".join(chunk.delta.content or "" for chunk in chunks) == "Let me look."


def test_a_custom_tool_gets_its_text_and_is_sent_back() -> None:
    replica = Replica()
    whole, chunks = replica.chat(tools=[TOOL, CUSTOM], tool_choice={"type": "custom", "custom": {"name": "run"}})
    function = replica.got["tools"][1]["function"]
    assert function["parameters"]["properties"] == {"input": {"type": "string"}}
    assert replica.got["tool_choice"] == {"type": "function", "function": {"name": "run"}}
    listed, custom = whole.message.tool_calls
    assert (listed.function.name, custom.custom.name, custom.custom.input) == ("ls", "run", "x = 1")
    sent = [call.model_dump() for chunk in chunks for call in chunk.delta.tool_calls or ()]
    assert [call.get("custom") for call in sent] == [None, {"name": "run", "input": "x = 1"}]
    back = [HELLO, whole.message.model_dump(exclude_none=True), {"role": "tool", "tool_call_id": "x", "content": "1"}]
    replica.chat(tools=[CUSTOM], messages=back)
    assert replica.got["messages"][1]["tool_calls"] == CALLS


def test_allowed_tools_are_the_only_ones_that_are_left() -> None:
    replica = Replica()
    allowed = {"mode": "required", "tools": [{"type": "function", "function": {"name": "ls"}}]}
    other = {"type": "function", "function": {**TOOL["function"], "name": "cat"}}  # type: ignore[dict-item]
    replica.chat(tools=[other, TOOL], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    assert (replica.got["tools"], replica.got["tool_choice"]) == ([TOOL], "required")


REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("functions", {"functions": [TOOL["function"]], "tools": [TOOL]}),
    ("functions", {"functions": "ls"}),
    ("tools", {"functions": [7]}),
    ("functions", {"tools": [TOOL], "function_call": "auto"}),
    *(("tool_choice", {"functions": [TOOL["function"]], "function_call": call}) for call in (7, {"name": 7})),
    ("tools", {"tools": [{"type": "custom", "custom": {"name": "x", "format": {"type": "grammar"}}}]}),
    ("tools", {"tools": [{"type": "custom", "custom": {"name": 7}}]}),
    *(
        ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}})
        for allowed in (7, {}, {"mode": "auto", "tools": 7}, {"mode": "auto", "tools": [7]}, {"tools": [TOOL]})
    ),
    ("messages", {"messages": [{"role": "assistant", "tool_calls": [{"type": "custom", "custom": 7}]}]}),
    ("modalities", {"modalities": ["text", "audio"]}),
    ("chat_template_kwargs", {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}),
]


@pytest.mark.parametrize(("name", "fields"), REFUSED)
def test_a_form_without_an_equivalent_is_refused_by_the_name_of_its_field(name: str, fields: dict[str, Any]) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        Replica().chat(**fields)
    assert str(refused.value.param).startswith(name)
    assert refused.value.code


@pytest.mark.parametrize("temperature", [0, 1e-9])
def test_several_greedy_answers_are_each_the_greedy_one(temperature: float) -> None:
    """vLLM refuses `n` with a temperature of 0: the likeliest token alone to sample from is the same."""
    sent = {"messages": [HELLO], "n": 3, "temperature": temperature, "top_p": 0.5, "seed": 1}
    found = parse_request(sent, chat=True, limits=LIMITS)
    assert (found["n"], found["temperature"], found["top_k"], found["top_p"]) == (3, 1.0, 1, 1.0)
    from vllm import SamplingParams

    SamplingParams(n=3, temperature=found["temperature"], top_k=found["top_k"], top_p=found["top_p"])


ITEMS: list[Any] = [
    {"role": "developer", "content": [{"type": "input_text", "text": text} for text in "ab"]},
    {"role": "user", "content": "Hi"},
]


def test_a_response_is_a_chat_s_answer_whole_and_streamed() -> None:
    replica = Replica()
    sent: dict[str, Any] = {
        "model": "m",
        "instructions": "Be brief.",
        "input": ITEMS,
        "tools": [FLAT],
        "temperature": 0,
    }
    more = {"max_output_tokens": 50, "parallel_tool_calls": True, "metadata": {"a": "b"}, "store": True}
    whole = replica.client.responses.create(**sent, **more)
    Response.model_validate(whole.model_dump())
    first = [{"role": "system", "content": "Be brief."}, {"role": "developer", "content": "a\nb"}, ITEMS[1]]
    assert replica.got["messages"] == first
    assert (replica.got["tools"], replica.got["max_completion_tokens"]) == ([TOOL], 50)
    assert (whole.status, whole.output_text, whole.metadata) == ("completed", "Let me look.", {"a": "b"})
    assert [item.type for item in whole.output] == ["reasoning", "message", "function_call", "function_call"]
    assert whole.usage is not None
    assert whole.usage.total_tokens == 7

    with replica.client.responses.stream(**sent) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    text = ["output_text.delta"] * 2
    call = ["output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"]
    ended = ["output_text.done", "content_part.done", "output_item.done", *call, *call, "completed"]
    assert kinds[:2] == ["created", "in_progress"]
    assert kinds[-len(ended) - 4 :] == ["output_item.added", "content_part.added", *text, *ended]
    without: Any = {"id": True, "parsed_arguments": True, "content": {"__all__": {"parsed"}}}
    assert [[item.model_dump(exclude=without) for item in each.output] for each in (whole, final)] == [
        [item.model_dump(exclude=without) for item in whole.output]
    ] * 2
    assert final.usage == whole.usage

    results = [{"type": "function_call_output", "call_id": call["id"], "output": "ok"} for call in CALLS]
    replica.client.responses.create(model="m", input=[*ITEMS, *whole.output, *results])
    answer, *given = replica.got["messages"][2:]
    assert (answer["reasoning_content"], answer["content"], answer["tool_calls"]) == ("Hmm.", "Let me look.", CALLS)
    assert given == [{"role": "tool", "tool_call_id": call["id"], "content": "ok"} for call in CALLS]


def test_a_cut_response_is_incomplete_and_one_with_a_fault_failed() -> None:
    cut = Replica(calls=0, finish="length")
    whole = cut.client.responses.create(model="m", input="Hi")
    assert whole.status == "incomplete"
    assert whole.incomplete_details is not None
    assert whole.incomplete_details.reason == "max_output_tokens"
    for replica, last in ((cut, "response.incomplete"), (Replica(fault=True), "response.failed")):
        events = list(replica.client.responses.create(model="m", input="Hi", stream=True))
        assert events[-1].type == last
        assert sum(event.type == last for event in events) == 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        *(({name: value}, name) for name, value in (("previous_response_id", "x"), ("conversation", "x"))),
        *(({"background": True}, "background"), ({"prompt": {"id": "x"}}, "prompt"), ({"nothing": 1}, "nothing")),
        *(({"tools": [{"type": kind}]}, "tools[0].type") for kind in ("web_search", "mcp", "custom", 7)),
        *(({"tools": 7}, "tools"), ({"tools": [7]}, "tools[0]"), ({"text": 7}, "text"), ({"input": 7}, "input")),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        (
            {"tools": [{**FLAT, "parameters": {"uniqueItems": True}}], "tool_choice": "required"},
            "tools[0].parameters.uniqueItems",
        ),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content"),
        ({"input": [{"type": "function_call_output", "output": 7}]}, "input[0].output"),
        ({"instructions": "Be brief.", "input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": ["hi"]}, "input"),
        ({"input": None}, "input"),
        *(({"input": [{"type": "reasoning", key: 7}]}, "input[0]") for key in ("content", "summary")),
        ({"input": [{"type": "function_call"}]}, "input[0].tool_calls[0]"),
        ({"max_output_tokens": 10**9}, "max_output_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"text": {"format": {"type": "json_schema", "schema": {"maxItems": 10**9}}}}, "text.format.schema.maxItems"),
    ],
)
def test_a_response_that_cannot_be_is_refused_by_the_name_of_its_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        Replica().client.responses.create(model="m", input="Hi", extra_body=fields)
    assert str(refused.value.param).startswith(param)
    assert refused.value.code


def rows(heading: str) -> dict[str, str]:
    """Parameter → what the page says of it, in the table of a section."""
    section = PAGE.split(heading, 1)[1].split("\n## ", 1)[0]
    found = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {name: kind for names, kind, *_ in found for name in re.findall("`([^`]+)`", names)}


def test_the_page_has_a_row_for_each_parameter() -> None:
    fields = {**ChatFields.__annotations__, **CompletionFields.__annotations__, **dict.fromkeys((*OLD_FIELDS, *FIXED))}
    chat = rows("## Parameters of chats and completions")
    assert {name for name, kind in chat.items() if kind == "ignored"} == IGNORED
    assert {name for name, kind in chat.items() if kind == "enforced"} == set(fields)
    for module in (chat_create_params, completion_create_params):
        assert set(module.CompletionCreateParamsBase.__annotations__) <= set(chat)
    response = rows("## Responses")
    assert {name for name, kind in response.items() if kind == "ignored"} == RESPONSE_IGNORED
    assert {name for name, kind in response.items() if kind == "enforced"} < set(ResponseFields.model_fields)
    assert set(response_create_params.ResponseCreateParamsBase.__annotations__) <= set(response)
    for name in (name for name, kind in chat.items() if kind == "refused"):
        with pytest.raises(RefusedRequest, match=name):
            parse_request({"messages": [HELLO], name: 1}, chat=True, limits=LIMITS)
