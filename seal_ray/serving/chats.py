"""The messages and tools of a chat as they are passed on: plain texts and calls, without fields that are not used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from envs.text import valid_text
from seal_ray.serving.checks import object_of, wrong
from seal_ray.serving.limits import Limits, RefusedRequest

ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def messages(value: Any, place: str, limits: Limits) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise wrong(place, "it is no list")
    if len(value) > limits.messages:
        raise RefusedRequest(
            f"messages: there are {len(value)}; {limits.messages} are allowed.", param=place, code="too_many_messages"
        )
    return [_message(each, f"{place}[{index}]") for index, each in enumerate(value)]


def _message(value: Any, place: str) -> dict[str, Any]:
    message = object_of(value, place)
    role = message.get("role")
    if role not in ROLES:
        shown = valid_text(role)[:80] if isinstance(role, str) else type(role).__name__
        raise wrong(f"{place}.role", f"{shown!r} is not known; allowed are {', '.join(ROLES)}", "invalid_value")
    found: dict[str, Any] = {"role": role, "content": content_of(message, place)}
    if role == "tool":
        found["tool_call_id"] = message["tool_call_id"] if isinstance(message.get("tool_call_id"), str) else "call"
    elif role == "function":
        found["name"] = message["name"] if isinstance(message.get("name"), str) else "function"
    elif role == "assistant" and message.get("tool_calls") is not None:
        calls = message["tool_calls"]
        if not isinstance(calls, list):
            raise wrong(f"{place}.tool_calls", "it is no list")
        found["tool_calls"] = [_call(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(calls)]
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


def _call(value: Any, place: str) -> dict[str, Any]:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
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


def tools(value: Any, place: str, limits: Limits) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        raise wrong(place, "it is no list")
    if len(value) > limits.tools:
        raise RefusedRequest(
            f"tools: there are {len(value)}; {limits.tools} are allowed.", param=place, code="too_many_tools"
        )
    found = []
    for index, tool in enumerate(value):
        function = (
            tool.get("function") if isinstance(tool, dict) and tool.get("type", "function") == "function" else None
        )
        where = f"{place}[{index}].function"
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            raise wrong(where, "a tool needs a function with a name", "invalid_value")
        for key, kind in (("description", str), ("parameters", dict)):
            if function.get(key) is not None and not isinstance(function[key], kind):
                raise wrong(f"{where}.{key}", "it is no text" if kind is str else "it is no object")
        # Grammars for calls that need not be made are not served, so nothing must be strict.
        shown = {key: item for key, item in function.items() if key != "strict"}
        found.append({"type": "function", "function": shown})
    return found


def tool_choice(value: Any, place: str, _: Limits) -> Any:
    if value in ("none", "auto", "required"):
        return value
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise wrong(place, "it is none of 'none', 'auto', 'required' and a function with a name", "invalid_value")
    return {"type": "function", "function": {"name": function["name"]}}
