"""The messages of a chat: checked, as text, thoughts and calls. What none of these can say is refused by its name."""

import json
from collections.abc import Iterator, Mapping, Set
from typing import Any

from seal_ray.serving.limits import wrong

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_NAMED_ROLES = {"tool": ("tool_call_id", "call"), "function": ("name", "function")}
"""Role → the key of its message that names what it answers, and that key's default."""
_KEYS = {
    *("role", "content", "name", "tool_call_id", "id", "type", "status", "annotations", "parsed", "cache_control"),
    "provider_specific_fields",
}
"""Keys of every message. Only role, content and the call's id are read; the others add no text to a dialogue."""
_ANSWER_KEYS = {"tool_calls", "function_call", "refusal", "reasoning_content", "reasoning", "thinking_blocks"}
_TEXTS = {"text", "input_text", "output_text", "refusal"}
"""Types of the parts of content that are text."""
_THOUGHTS = {"reasoning", "thinking"}
"""Types of the parts of content, and of `thinking_blocks`, that are an answer's thoughts."""


def check_message(value: Any, place: str) -> dict[str, Any]:
    """A message in plain types: an answer's thoughts under `reasoning_content`, and all its calls under `tool_calls`.

    Raises `RefusedRequest` for an unknown role, and for keys or content that would be lost.
    """
    if not isinstance(value, dict):
        raise wrong(place, "it is no object")
    role = value.get("role")
    if role not in _ROLES:
        shown = role[:80] if isinstance(role, str) else type(role).__name__
        raise wrong(f"{place}.role", f"{shown!r} is not known; allowed are {', '.join(_ROLES)}", "invalid_value")
    known = _KEYS | _ANSWER_KEYS if role == "assistant" else _KEYS
    for key, item in value.items():
        if item and key not in known:
            raise wrong(
                f"{place}.{key[:80]}", f"it is not served in messages of the role {role!r}", "unknown_parameter"
            )
    checked: dict[str, Any] = {"role": role, "content": content_of(value, place)}
    if role in _NAMED_ROLES:
        key, default = _NAMED_ROLES[role]
        checked[key] = value[key] if isinstance(value.get(key), str) else default
    if role == "assistant":
        calls = value.get("tool_calls") or []
        if not isinstance(calls, list):
            raise wrong(f"{place}.tool_calls", "it is no list")
        made = [call_of(call, f"{place}.tool_calls[{index}]") for index, call in enumerate(calls)]
        if value.get("function_call"):
            made.append(call_of({"function": value["function_call"]}, f"{place}.function_call"))
        found = {"reasoning_content": thoughts_of(value, place), "tool_calls": made}
        checked |= {key: item for key, item in found.items() if item}
    return checked


def content_of(message: Mapping[str, Any], place: str) -> str:
    """The text of a message, each of its parts and a refusal on a line, without an answer's thoughts.

    Raises `RefusedRequest` for content that is not text.
    """
    others = _THOUGHTS if message.get("role") == "assistant" else set()
    texts = _texts(message.get("content"), f"{place}.content", _TEXTS, others)
    return "\n".join([*texts, *filter(None, [_text(message, "refusal", place)])])


def thoughts_of(message: Mapping[str, Any], place: str) -> str:
    """An answer's thoughts, from the first key that has any: the others repeat them."""
    for key in ("reasoning_content", "reasoning"):
        if thoughts := _text(message, key, place):
            return thoughts
    blocks = "\n".join(_texts(message.get("thinking_blocks"), f"{place}.thinking_blocks", _THOUGHTS))
    return blocks or "\n".join(_texts(message.get("content"), f"{place}.content", _THOUGHTS, _TEXTS))


def named_function(value: Any) -> dict[str, Any] | None:
    """The function of a call, a tool or a choice, if it has a name."""
    function = value.get("function") if isinstance(value, dict) else None
    return function if isinstance(function, dict) and isinstance(function.get("name"), str) else None


def call_of(value: Any, place: str) -> dict[str, Any]:
    """A call with its arguments as text. Raises `RefusedRequest` for one without a name."""
    function = named_function(value)
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


def _text(message: Mapping[str, Any], key: str, place: str) -> str:
    text = message.get(key)
    if text is not None and not isinstance(text, str):
        raise wrong(f"{place}.{key}", "it is no text")
    return text or ""


def _texts(content: Any, place: str, wanted: Set[str], others: Set[str] = frozenset()) -> Iterator[str]:
    """The texts of parts of the `wanted` types. Raises `RefusedRequest` if a part is of no type of either set."""
    parts = content if isinstance(content, list) else [] if content is None else [content]
    for number, part in enumerate(parts):
        whole = part if isinstance(part, dict) else {"text": part}
        kind = str(whole.get("type", "text"))[:80]
        text = whole.get("text", whole.get(kind))
        if kind not in wanted | others or not isinstance(text, str):
            raise wrong(
                f"{place}[{number}]", f"only text is served, and this is a part of type {kind!r}", "invalid_value"
            )
        if kind in wanted:
            yield text
