"""OpenAI's other forms of a chat request, translated into the one that is served, and its answers translated back.

They are `functions` and `function_call`, a `tool_choice` of allowed tools, and custom tools whose input is text.
"""

import json
from collections.abc import Iterator
from typing import Any

from starlette.types import Message, Send

from seal_ray.serving.limits import RefusedRequest, header, read_body, wrong

OLD_FIELDS = ("functions", "function_call")
"""The older form of `tools` and `tool_choice`."""
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The arguments of a custom tool as a function."""
_DATA, _DONE = b"data: ", b"[DONE]"


def translating_send(send: Send, form: Any) -> Send:
    """Sends the answer of a chat in another form; an error is not translated.

    `form.whole` translates an answer, and `form.events` a chunk of a stream, or None at its end.
    """
    start: Message = {}
    body = b""

    async def translate(message: Message) -> None:
        nonlocal start, body
        if message["type"] == "http.response.start":
            start = message
        streamed = header(start, b"content-type").startswith(b"text/event-stream")
        body += message.get("body", b"")
        if streamed and message is not start:
            *lines, body = body.split(b"\n\n")
            data = [line.removeprefix(_DATA) for line in lines if line.startswith(_DATA)]
            chunks = [None if each == _DONE else json.loads(each) for each in data]
            message = {**message, "body": "".join(event for chunk in chunks for event in form.events(chunk)).encode()}
        if streamed:
            await send(message)
        elif message is not start and not message.get("more_body"):
            whole = json.dumps(form.whole(json.loads(body))).encode() if start["status"] == 200 else body
            headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            await send({**start, "headers": [*headers, (b"content-length", str(len(whole)).encode())]})
            await send({**message, "body": whole})

    return translate


class CallForm:
    """Calls as `function_call` if the request has `functions` (`old`), and calls of `custom` tools with their text."""

    def __init__(self, *, old: bool, custom: set[str]) -> None:
        self._old = old
        self._custom = custom

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        for choice in answer.get("choices", ()):
            part = choice.get("message") or choice.get("delta") or {}
            calls = [self._call(call) for call in part.pop("tool_calls", None) or ()]
            if calls:
                part |= {"function_call": calls[0]["function"]} if self._old else {"tool_calls": calls}
            if self._old and choice.get("finish_reason") == "tool_calls":
                choice["finish_reason"] = "function_call"
        return answer

    def events(self, chunk: dict[str, Any] | None) -> Iterator[str]:
        yield f"data: {json.dumps(self.whole(chunk)) if chunk else '[DONE]'}\n\n"

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        name, arguments = (call["function"][key] for key in ("name", "arguments"))
        if name not in self._custom:
            return call
        try:
            text = read_body(arguments.encode())["input"]
        except (RefusedRequest, KeyError, TypeError):
            text = arguments
        given = {key: value for key, value in call.items() if key != "function"}
        return {**given, "type": "custom", "custom": {"name": name, "input": str(text)}}


def standard_form(document: Any) -> tuple[Any, CallForm | None]:
    """The document of a chat in the form that is served, and the form of its answers if that is another one.

    Raises `RefusedRequest` for a form that has no equivalent.
    """
    if not isinstance(document, dict):
        return document, None
    request = dict(document)
    old = any(request.get(name) is not None for name in OLD_FIELDS)
    if old:
        _replace_functions(request)
    custom: set[str] = set()
    if isinstance(request.get("tools"), list):
        request["tools"] = [_as_function(tool, f"tools[{at}]", custom) for at, tool in enumerate(request["tools"])]
    if isinstance(request.get("messages"), list):
        request["messages"] = [_translated_message(message) for message in request["messages"]]
    choice = _as_function(request.get("tool_choice"), "tool_choice", set())
    request["tool_choice"] = choice
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        _replace_allowed(request, choice.get("allowed_tools"))
    return request, CallForm(old=old, custom=custom) if old or custom else None


def _replace_functions(request: dict[str, Any]) -> None:
    functions, choice = (request.pop(name, None) for name in OLD_FIELDS)
    if request.get("tools") or request.get("tool_choice") or not isinstance(functions, list | None):
        raise wrong("functions", "it is a list of functions, without tools and tool_choice", "invalid_value")
    request["tools"] = [{"type": "function", "function": function} for function in functions or ()] or None
    request["tool_choice"] = {"type": "function", "function": choice} if isinstance(choice, dict) else choice
    request["parallel_tool_calls"] = False


def _as_function(value: Any, place: str, custom: set[str]) -> Any:
    """A custom tool, a call of one or a choice of one as that of a function, whose name is added to `custom`."""
    given = value.get("custom") if isinstance(value, dict) and value.get("type") == "custom" else None
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        return value
    if given.get("format") not in (None, {"type": "text"}):
        raise wrong(f"{place}.custom.format", "a custom tool takes text; no grammar is served for it", "invalid_value")
    custom.add(given["name"])
    called = {"arguments": json.dumps({"input": given["input"]})} if "input" in given else {"parameters": _INPUT}
    function = {key: given[key] for key in ("name", "description") if key in given} | called
    return {key: each for key, each in value.items() if key != "custom"} | {"type": "function", "function": function}


def _translated_message(message: Any) -> Any:
    if not isinstance(message, dict) or not isinstance(message.get("tool_calls"), list):
        return message
    return {**message, "tool_calls": [_as_function(call, "messages", set()) for call in message["tool_calls"]]}


def _replace_allowed(request: dict[str, Any], allowed: Any) -> None:
    mode, tools = (allowed.get(key) for key in ("mode", "tools")) if isinstance(allowed, dict) else (None, None)
    names = [_name(_as_function(tool, "tool_choice", set())) for tool in tools or ()] if isinstance(tools, list) else []
    kept = [tool for tool in request.get("tools") or () if _name(tool) in names]
    if not kept or mode not in ("auto", "required"):
        reason = "it needs a mode ('auto' or 'required') and tools of the request"
        raise wrong("tool_choice.allowed_tools", reason, "invalid_value")
    request |= {"tools": kept, "tool_choice": mode}


def _name(tool: Any) -> Any:
    function = tool.get("function") if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else tool
