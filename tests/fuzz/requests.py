"""Hostile requests to the server's intake and rendering: a chunk of them from a seed, and what must hold of each."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from starlette.responses import JSONResponse
from vllm.entrypoints.openai.responses import streaming_events  # noqa: F401 - as the ingress loads it, before any request

from envs.dialects import DIALECTS
from envs.errors import UserError
from envs.task import JSON
from seal_ray.serving.admission import CHAT, COMPLETIONS, RESPONSES, Intake
from seal_ray.serving.limits import RequestLimits, error_response
from seal_ray.serving.prompt import ServedFormat
from seal_ray.serving.queues import Places
from tests.fuzz.pieces import Tally
from tests.policies.chat_models import FAMILIES, control_ids, family_tokenizer

CHUNK = 500
"""Requests in a chunk."""
CONTEXT = 4_096
_LIMITS = RequestLimits(body_bytes=1 << 20, messages=512, tools=64, context=CONTEXT)
_STATUSES = {200, 400, 408, 413}

_SCALARS: Sequence[JSON] = (
    *(None, True, False, 0, 1, -1, 2, 8, 9, 1e308, -1e308, 0.5, 10**9, 2**31, 2**63, 10**400),
    *(float("nan"), float("inf")),
    *("", "a", "\x00", "\ud83d", "\ud83d\ude00", "<|im_end|>", "auto", "required", "none", "json_object", "9" * 5_000),
    *("</tool_response>\n<tool_response>", "{{ messages }}", "{% for x in y %}", "../../etc/passwd", "x" * 20_000),
)
_FIELDS = (
    *("messages", "tools", "tool_choice", "response_format", "temperature", "top_p", "top_k", "min_p", "n", "seed"),
    *("max_tokens", "max_completion_tokens", "min_tokens", "stop", "stop_token_ids", "logit_bias", "logprobs"),
    *("top_logprobs", "prompt_logprobs", "stream", "stream_options", "frequency_penalty", "presence_penalty", "user"),
    *("structured_outputs", "guided_regex", "bad_words", "allowed_token_ids", "best_of", "echo", "prompt", "suffix"),
    *("priority", "kv_transfer_params", "chat_template", "add_generation_prompt", "mm_processor_kwargs", "cache_salt"),
    *("functions", "function_call", "modalities", "chat_template_kwargs", "input", "instructions", "text"),
    *("__class__", "\ud83d", "", "model", "echo", "repetition_penalty", "skip_special_tokens", "vllm_xargs"),
)
_KEYS = (
    *("type", "name", "function", "schema", "json_schema", "text", "role", "content", "a", "\ud83d", "5", "regex"),
    *("custom", "strict", "input", "format", "allowed_tools", "mode", "tools", "pattern", "items", "$ref", "enum"),
)


@dataclass
class Sent(Tally):
    """The counts, statuses and costs of requests."""

    requests: int = 0
    statuses: Counter[int] = field(default_factory=Counter)


def send_chunk(seed: int, number: int) -> Sent:
    """Sends one chunk. Raises `AssertionError` or whatever escaped."""
    return asyncio.run(_send_all(random.Random(f"requests {seed} {number}")))


async def _send_all(rng: random.Random) -> Sent:
    sent = Sent()
    family = rng.choice(list(FAMILIES))
    app = Intake(_rendering(family), limits=_LIMITS, places=Places(4, waiting=16))
    for _ in range(CHUNK):
        path, body = _body(rng, family)
        started = time.process_time()
        status, answer = await _ask(app, path, body)
        spent = time.process_time() - started
        assert status in _STATUSES, (status, answer[:300], body[:300])
        if status != 200:
            error = json.loads(answer)["error"]
            assert error["message"], body[:300]
            assert error["type"] == "invalid_request_error"
            error["message"].encode()
        sent.requests += 1
        sent.statuses[status] += 1
        sent.time(spent, f"{family} {path} {len(body)} bytes: {body[:80]!r}")
    return sent


@cache
def _form(family: str) -> tuple[ServedFormat, frozenset[int]]:
    form = ServedFormat(family_tokenizer(family), DIALECTS[FAMILIES[family].dialect], name=family)
    return form, control_ids(family)


def _rendering(family: str) -> Any:
    """An application that renders a chat as a replica does, and says how many tokens it has."""
    form, control = _form(family)

    async def app(scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        request = json.loads(body)
        body.decode("utf-8")
        try:
            if scope["path"] == CHAT:
                tools = [tool["function"] for tool in request.get("tools") or ()]
                token_ids = form.prompt(request["messages"], tools, most=CONTEXT - 1)
                turns = sum(message["role"] != "assistant" for message in request["messages"])
                # A turn opens and closes its message, and opens the next: a handful of control tokens, never more.
                found = sum(token in control for token in token_ids)
                assert found <= 12 * (turns + 2) + 12 * len(request["messages"]), (found, turns)
            else:
                token_ids = ()
        except UserError as error:
            await error_response(400, str(error))(scope, receive, send)
            return
        await JSONResponse({"choices": [], "tokens": len(token_ids)})(scope, receive, send)

    return app


async def _ask(app: Intake, path: str, body: bytes) -> tuple[int, bytes]:
    headers = [(b"content-type", b"application/json"), (b"x-request-id", b"1")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers}
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    answered: dict[str, Any] = {"status": 0, "body": b""}

    async def receive() -> dict[str, Any]:
        return messages.pop() if messages else {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        answered["status"] = message.get("status", answered["status"])
        answered["body"] += message.get("body", b"")

    await app(scope, receive, send)
    return answered["status"], answered["body"]


def _body(rng: random.Random, family: str) -> tuple[str, bytes]:
    path = rng.choices((CHAT, COMPLETIONS, RESPONSES), (7, 1, 2))[0]
    request: dict[str, JSON] = {"model": "m", **({"prompt": "Hello."} if path == COMPLETIONS else {})}
    if path == CHAT:
        request["messages"] = _messages(rng, family)
        if rng.random() < 0.4:
            request["tools"] = [_tool(rng, family) for _ in range(rng.choice((1, 1, 2, 5, 70)))]
    if path == RESPONSES:
        request["input"] = _messages(rng, family)
        request["tools"] = [{"type": "function", "name": _text(rng, family), "parameters": {}}]
    for _ in range(rng.choice((0, 0, 1, 1, 2, 3))):
        request[rng.choice(_FIELDS)] = _value(rng, depth=rng.choice((0, 0, 1, 2, 3)))
    text = json.dumps(request)
    kind = rng.random()
    if kind < 0.1:  # broken in the middle
        begin = rng.randrange(len(text))
        put = rng.choice(("", "[" * 500, '{"a":' * 500, "\\u", "NaN", ",", '"', "9" * 10_000))
        text = text[:begin] + put + text[begin + 1 :]
    elif kind < 0.13:
        large = ("[" * 60_000, '{"messages":' * 40_000, "[" + "0," * 150_000 + "0]", '"' * 90_000)
        text = rng.choice((*large, "", "null", "[]"))
    body = text.encode()
    if rng.random() < 0.03:
        place = rng.randrange(len(body) + 1)
        body = body[:place] + bytes(rng.randrange(256) for _ in range(3)) + body[place:]
    return path, body


def _text(rng: random.Random, family: str) -> str:
    def piece() -> str:
        control = rng.choice(FAMILIES[family].control)
        return rng.choice((control, "\ud83d", "hello ", "</tool_response>", "\n", chr(rng.randrange(0x110000))))

    pieces = [piece() for _ in range(rng.randint(0, 6))]
    return "".join(pieces) * rng.choice((1, 1, 1, 1, 50))


def _messages(rng: random.Random, family: str) -> list[JSON]:
    roles = ("system", "developer", "user", "assistant", "tool", "function", "robot", "\ud83d", None)
    sizes = (1, 2, 3, 4, 6, 20, 600) if rng.random() < 0.1 else (1, 2, 3, 4)
    sensible = [
        {"role": "user" if place % 2 == 0 else "assistant", "content": _text(rng, family)}
        for place in range(rng.choice(sizes))
    ]
    made: list[JSON] = list(sensible)
    for place in range(len(made)):
        chance = rng.random()
        if chance < 0.1:
            made[place] = {"role": rng.choice(roles), "content": _value(rng, depth=2)}
        elif chance < 0.2 and place % 2:
            arguments = rng.choice((_text(rng, family), "{}", '{"a": "\\ud83d"}', {"a": 1}))
            function = {"name": _text(rng, family), "arguments": arguments}
            made[place] = {"role": "assistant", "tool_calls": [{"id": "1", "type": "function", "function": function}]}
        elif chance < 0.23:
            made[place] = _value(rng, depth=2)
    return made


def _tool(rng: random.Random, family: str) -> JSON:
    value: JSON = {"type": "string", "description": _text(rng, family)}
    parameters: dict[str, JSON] = {"type": "object", "properties": {_text(rng, family): value}}
    parameters["required"] = rng.choice(([], ["a"], 5, None))
    name, description = _text(rng, family) or "f", _text(rng, family)
    function: dict[str, JSON] = {"name": name, "description": description, "parameters": parameters}
    if rng.random() < 0.2:
        function[rng.choice(("name", "description", "parameters", "strict", "\ud83d"))] = _value(rng, depth=3)
    return {"type": "function", "function": function} if rng.random() < 0.95 else _value(rng, depth=2)


def _value(rng: random.Random, *, depth: int) -> JSON:
    if depth == 0 or rng.random() < 0.3:
        return rng.choice(_SCALARS)
    if rng.random() < 0.5:
        return [_value(rng, depth=depth - 1) for _ in range(rng.choice((0, 1, 2, 3, 200)))]
    return {rng.choice(_KEYS): _value(rng, depth=depth - 1) for _ in range(rng.randint(0, 4))}
