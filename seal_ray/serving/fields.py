"""The fields of a request that are served, each with its bounds: the one list of what clients can ask for.

What is not on the list is refused by its name. A request comes out of here with valid text, plain types and nothing
else in it, so that what lies behind (FastAPI, Ray, vLLM) never meets what it was not made for. The messages and tools
of a chat are passed on as plain texts and calls, without fields that are not used.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from envs.text import map_texts, valid_text
from seal_ray.serving.limits import (
    Check,
    RefusedRequest,
    RequestLimits,
    check_schema,
    check_schema_size,
    flag,
    number,
    object_of,
    read_body,
    several,
    text,
    whole,
    wrong,
)

MAX_CHOICES = 8
"""Answers to one request, and prompts in one, at most."""
MAX_LOGPROBS = 20
"""Most alternatives whose log-probabilities are returned, as vLLM's default."""
_INT64 = 2**63 - 1
_TOKEN_ID = 2**31 - 1
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def checked(document: Any, *, chat: bool, limits: RequestLimits) -> dict[str, Any]:
    """A request's document as it goes on: every field within its bounds, and all text valid Unicode.

    Raises `RefusedRequest` with one sentence for the first field that is not served or out of bounds.
    """
    if not isinstance(document, dict):
        raise RefusedRequest("body: it is no JSON object.", code="invalid_type")
    fields = _CHAT if chat else _COMPLETION
    needed = "messages" if chat else "prompt"
    if document.get(needed) is None:
        raise RefusedRequest(f"{needed}: it is missing.", param=needed, code="missing_required_parameter")
    found: dict[str, Any] = {}
    for name, value in document.items():
        if name in _WITHOUT_EFFECT or value is None:
            continue
        if name not in fields:
            raise RefusedRequest(
                f"{valid_text(name)[:80]!r}: such a field is not served.",
                param=valid_text(name)[:80],
                code="unknown_parameter",
            )
        found[name] = fields[name](value, name, limits)
    _check_together(found)
    if found.get("echo") and found.get("logprobs") is not None:
        raise wrong("echo", "the log-probabilities of prompts are not served")
    return {key: map_texts(value, valid_text) for key, value in found.items()}


def is_constrained(document: Mapping[str, Any]) -> bool:
    """Whether a grammar holds all of the answer: JSON mode, a schema, a choice, or a call that must be made."""
    return (
        document.get("response_format", {"type": "text"})["type"] != "text"
        or "structured_outputs" in document
        or document.get("tool_choice", "auto") not in ("auto", "none")
    )


def _check_together(document: Mapping[str, Any]) -> None:
    """Checks what depends on several fields."""
    if is_constrained(document):
        for name in _AGAINST_GRAMMARS:
            if document.get(name):
                raise wrong(name, "it is not served together with structured answers", "invalid_value")
    if document.get("n", 1) * document.get("top_logprobs", 0) > 2 * MAX_LOGPROBS:
        raise wrong("top_logprobs", f"n times top_logprobs is more than {2 * MAX_LOGPROBS}", "out_of_range")
    if isinstance(document.get("tool_choice"), dict) or document.get("tool_choice") == "required":
        parameters = [tool["function"].get("parameters") for tool in document.get("tools") or ()]
        check_schema(parameters, "tools")


def _stop(value: Any, place: str, limits: RequestLimits) -> list[str]:
    texts: list[str] = several(text(200, 1), 16)([value] if isinstance(value, str) else value, place, limits)
    return texts


def _bias(value: Any, place: str, limits: RequestLimits) -> dict[str, float]:
    entries = object_of(value, place)
    if len(entries) > 300:
        raise wrong(place, f"it has {len(entries)} entries; 300 are allowed", "array_above_max_length")
    amount = number(-100, 100)
    for key in entries:
        if not (key.isascii() and key.isdigit() and len(key) < 10):
            raise wrong(place, "its keys are token ids")
    return {key: amount(item, place, limits) for key, item in entries.items()}


def _stream_options(value: Any, place: str, limits: RequestLimits) -> dict[str, bool]:
    known = ("include_usage", "continuous_usage_stats")
    options = object_of(value, place)
    return {name: flag(options[name], place, limits) for name in known if options.get(name) is not None}


def _response_format(value: Any, place: str, _: RequestLimits) -> dict[str, Any]:
    kind = object_of(value, place).get("type")
    if kind in ("text", "json_object"):
        return {"type": kind}
    if kind != "json_schema":
        raise wrong(f"{place}.type", "it is none of 'text', 'json_object' and 'json_schema'", "invalid_value")
    described = object_of(value.get("json_schema"), f"{place}.json_schema")
    schema = object_of(described.get("schema"), f"{place}.json_schema.schema")
    check_schema(schema, f"{place}.json_schema.schema")
    return {"type": kind, "json_schema": {"name": "answer", "schema": schema}}


def _structured_outputs(value: Any, place: str, limits: RequestLimits) -> dict[str, Any]:
    given = {key: item for key, item in object_of(value, place).items() if item is not None}
    if len(given) != 1:
        raise wrong(place, "it has exactly one of 'json', 'json_object' and 'choice'", "invalid_value")
    ((key, item),) = given.items()
    if key == "json":
        schema = _parsed(item, f"{place}.json") if isinstance(item, str) else item
        check_schema(object_of(schema, f"{place}.json"), f"{place}.json")
        return {key: schema}
    if key == "json_object":
        return {key: flag(item, f"{place}.{key}", limits)}
    if key == "choice":
        return {key: several(text(1_000, 1), 256)(item, f"{place}.{key}", limits)}
    raise wrong(place, f"{key[:80]!r} is not served: what it compiles to has no bound", "invalid_value")


def _parsed(schema: str, place: str) -> Any:
    """A schema that comes as text, which is parsed only if that cannot take long."""
    check_schema_size(len(schema), place)
    try:
        return read_body(valid_text(schema).encode())
    except RefusedRequest as error:
        raise wrong(place, f"it is no schema ({error})", "invalid_value") from None


def _prompt(value: Any, place: str, limits: RequestLimits) -> Any:
    """A text, token ids, or several of either."""
    if isinstance(value, str):
        return text(limits.body_bytes, 1)(value, place, limits)
    if not isinstance(value, list) or not value:
        raise wrong(place, "it is neither text nor token ids")
    if isinstance(value[0], int):
        if len(value) > limits.context:
            raise RefusedRequest(
                f"prompt: it has {len(value)} tokens; the context is {limits.context}.",
                param=place,
                code="context_length_exceeded",
            )
        return several(whole(0, _TOKEN_ID), limits.context)(value, place, limits)
    if any(isinstance(each, list) and not (each and isinstance(each[0], int)) for each in value):
        raise wrong(place, "it is neither text nor token ids")
    return several(_prompt, MAX_CHOICES)(value, place, limits)


def _messages(value: Any, place: str, limits: RequestLimits) -> list[dict[str, Any]]:
    _check_number(value, place, limits.messages, "too_many_messages")
    return [_message(each, f"{place}[{index}]") for index, each in enumerate(value)]


def _check_number(value: Any, place: str, most: int, code: str) -> None:
    if not isinstance(value, list):
        raise wrong(place, "it is no list")
    if len(value) > most:
        raise wrong(place, f"there are {len(value)}; {most} are allowed", code)


def _named_function(value: Any) -> dict[str, Any] | None:
    """The function of a call, a tool or a choice, where it has a name."""
    function = value.get("function") if isinstance(value, dict) else None
    return function if isinstance(function, dict) and isinstance(function.get("name"), str) else None


def _message(value: Any, place: str) -> dict[str, Any]:
    message = object_of(value, place)
    role = message.get("role")
    if role not in _ROLES:
        shown = valid_text(role)[:80] if isinstance(role, str) else type(role).__name__
        raise wrong(f"{place}.role", f"{shown!r} is not known; allowed are {', '.join(_ROLES)}", "invalid_value")
    found: dict[str, Any] = {"role": role, "content": content_of(message, place)}
    if role == "tool":
        found["tool_call_id"] = message["tool_call_id"] if isinstance(message.get("tool_call_id"), str) else "call"
    elif role == "function":
        found["name"] = message["name"] if isinstance(message.get("name"), str) else "function"
    elif role == "assistant" and message.get("tool_calls") is not None:
        calls = message["tool_calls"]
        if not isinstance(calls, list):
            raise wrong(f"{place}.tool_calls", "it is no list")
        found["tool_calls"] = [call_of(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(calls)]
    return found


def content_of(message: Mapping[str, Any], place: str) -> str:
    """The text of a message, each of its parts on a line. Raises `RefusedRequest` for content that is not text."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise wrong(f"{place}.content", "only text is served", "invalid_value")
    return "\n".join(map(str, texts))


def call_of(value: Any, place: str) -> dict[str, Any]:
    """A call with its arguments as text. Raises `RefusedRequest` for one without a name."""
    function = _named_function(value)
    if function is None:
        raise wrong(place, "a call needs a function with a name", "invalid_value")
    arguments = function.get("arguments")
    if arguments is not None and not isinstance(arguments, str | dict):
        raise wrong(place, "the arguments of a call are JSON text", "invalid_value")
    name = value.get("id")
    text = json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else arguments or "{}"
    return {
        "id": name if isinstance(name, str) else "call",
        "type": "function",
        "function": {"name": function["name"], "arguments": text},
    }


def _tools(value: Any, place: str, limits: RequestLimits) -> list[dict[str, Any]]:
    _check_number(value, place, limits.tools, "too_many_tools")
    return [_tool(each, f"{place}[{index}].function") for index, each in enumerate(value)]


def _tool(value: Any, place: str) -> dict[str, Any]:
    function = _named_function(value)
    if function is None or not function["name"] or value.get("type", "function") != "function":
        raise wrong(place, "a tool needs a function with a name", "invalid_value")
    for key, kind in (("description", str), ("parameters", dict)):
        if function.get(key) is not None and not isinstance(function[key], kind):
            raise wrong(f"{place}.{key}", "it is no text" if kind is str else "it is no object")
    # Grammars for calls that need not be made are not served, so nothing must be strict.
    shown = {key: item for key, item in function.items() if key != "strict"}
    # Chat templates go through the properties; OpenAI lets a function without arguments leave them out.
    if "properties" not in (shown.get("parameters") or {}):
        shown["parameters"] = {"type": "object", "properties": {}, **(shown.get("parameters") or {})}
    return {"type": "function", "function": shown}


def _model(value: Any, place: str, limits: RequestLimits) -> str:
    name: str = text(500)(value, place, limits)
    if ":" in name:  # Ray takes what is behind a colon for an adapter of its own
        raise RefusedRequest(f"model: {name!r:.80} is not served.", status=404, param=place, code="model_not_found")
    return name


def _tool_choice(value: Any, place: str, _: RequestLimits) -> Any:
    if value in ("none", "auto", "required"):
        return value
    function = _named_function(value)
    if function is None:
        raise wrong(place, "it is none of 'none', 'auto', 'required' and a function with a name", "invalid_value")
    return {"type": "function", "function": {"name": function["name"]}}


_TOKEN_IDS = several(whole(0, _TOKEN_ID), 4_096)
_COMMON: dict[str, Check] = {
    "model": _model,
    "max_tokens": whole(1, None),
    "min_tokens": whole(0, None),
    "temperature": number(0, 2),
    "top_p": number(0, 1),
    "min_p": number(0, 1),
    "top_k": whole(-1, 10**6),
    "frequency_penalty": number(-2, 2),
    "presence_penalty": number(-2, 2),
    "repetition_penalty": number(0.01, 100),
    "seed": whole(-_INT64 - 1, _INT64),
    "n": whole(1, MAX_CHOICES),
    "stop": _stop,
    "stop_token_ids": several(whole(0, _TOKEN_ID), 16),
    "allowed_token_ids": _TOKEN_IDS,
    "bad_words": several(text(100, 1), 16),
    "logit_bias": _bias,
    "ignore_eos": flag,
    "stream": flag,
    "stream_options": _stream_options,
    "skip_special_tokens": flag,
    "spaces_between_special_tokens": flag,
    "include_stop_str_in_output": flag,
    "return_token_ids": flag,
    "return_tokens_as_token_ids": flag,
    "response_format": _response_format,
    "structured_outputs": _structured_outputs,
}
_CHAT: dict[str, Check] = {
    **_COMMON,
    "messages": _messages,
    "tools": _tools,
    "tool_choice": _tool_choice,
    "parallel_tool_calls": flag,
    "max_completion_tokens": whole(1, None),
    "logprobs": flag,
    "top_logprobs": whole(0, MAX_LOGPROBS),
}
_COMPLETION: dict[str, Check] = {
    **_COMMON,
    "prompt": _prompt,
    "echo": flag,
    "logprobs": whole(0, MAX_LOGPROBS),
    "add_special_tokens": flag,
    # Of vLLM's best_of only as many answers are left as are asked for.
    "best_of": whole(1, 1),
}
_AGAINST_GRAMMARS = ("allowed_token_ids", "bad_words", "min_tokens", "ignore_eos")
"""What may forbid the only token that a grammar leaves, which ends the request with a fault."""
_WITHOUT_EFFECT = frozenset(
    (
        "user",
        "store",
        "metadata",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "reasoning_effort",
        "verbosity",
    )
)
"""Fields that OpenAI's clients send and that mean nothing here."""
