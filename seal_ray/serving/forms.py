"""OpenAI's other forms of a chat request, translated into the one that is served, and its answers translated back.

They are `functions` and `function_call`, a `tool_choice` of allowed tools, and custom tools whose input is text.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Message, Send

from seal_ray.serving.limits import RefusedRequest, header, read_body, wrong

OLD_FIELDS = ("functions", "function_call")
"""The older form of `tools` and `tool_choice`."""
_INPUT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
"""The arguments of a custom tool as a function."""
_DATA, _DONE = b"data: ", b"[DONE]"


class AnswerForm(Protocol):
    """The form of the answers to one request."""

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        """The answer of a chat, in this form."""

    def events(self, chunk: dict[str, Any] | None) -> Iterator[str]:
        """The events for a chunk of a chat's stream, or for its end (None)."""


def translated(send: Send, form: AnswerForm) -> Send:
    """Sends the answer of a chat in another form; errors before its start stay as they are."""
    start: Message = {}
    body = b""

    async def translate(message: Message) -> None:
        nonlocal start, body
        if message["type"] == "http.response.start":
            start = message
        streamed = header(start, b"content-type").startswith(b"text/event-stream")
        if message is start:
            if streamed:
                await send(start)
            return
        body += message.get("body", b"")
        if streamed:
            *lines, body = body.split(b"\n\n")
            data = [line.removeprefix(_DATA) for line in lines if line.startswith(_DATA)]
            chunks = [None if each == _DONE else json.loads(each) for each in data]
            events = "".join(event for chunk in chunks for event in form.events(chunk))
            await send({**message, "body": events.encode()})
        elif not message.get("more_body"):
            if start["status"] == 200:
                body = json.dumps(form.whole(json.loads(body)), ensure_ascii=False).encode()
            headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            await send({**start, "headers": [*headers, (b"content-length", str(len(body)).encode())]})
            await send({**message, "body": body})

    return translate


@dataclass(frozen=True)
class CallForm:
    """Calls as `function_call` if the request has `functions` (`old`), and those of `custom` tools with their text."""

    old: bool
    custom: frozenset[str]

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        for choice in answer["choices"]:
            self._translate(choice, "message")
        return answer

    def events(self, chunk: dict[str, Any] | None) -> Iterator[str]:
        for choice in (chunk or {}).get("choices", ()):
            self._translate(choice, "delta")
        yield f"data: {json.dumps(chunk, ensure_ascii=False) if chunk else '[DONE]'}\n\n"

    def _translate(self, choice: dict[str, Any], key: str) -> None:
        part = choice[key]
        calls = [self._call(call) for call in part.get("tool_calls") or ()]
        if self.old:
            part.pop("tool_calls", None)
            if calls:
                part["function_call"] = calls[0]["function"]
            if choice.get("finish_reason") == "tool_calls":
                choice["finish_reason"] = "function_call"
        elif calls:
            part["tool_calls"] = calls

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        function = call["function"]
        if function["name"] not in self.custom:
            return call
        try:
            text = read_body(function["arguments"].encode())["input"]
        except (RefusedRequest, KeyError, TypeError):
            text = function["arguments"]
        custom = {"name": function["name"], "input": text if isinstance(text, str) else json.dumps(text)}
        return {**{key: value for key, value in call.items() if key != "function"}, "type": "custom", "custom": custom}


def standard_form(document: Any) -> tuple[Any, CallForm | None]:
    """The document of a chat with `tools` and `tool_choice` in the form that is served, and the form of its answers.

    Raises `RefusedRequest` for a form that has no equivalent.
    """
    if not isinstance(document, dict):
        return document, None
    request = dict(document)
    old = any(request.get(name) is not None for name in OLD_FIELDS)
    if old:
        _replace_functions(request)
    custom: set[str] = set()
    for name, translate in (("tools", _tool), ("messages", _message)):
        if isinstance(request.get(name), list):
            request[name] = [translate(each, f"{name}[{at}]", custom) for at, each in enumerate(request[name])]
    if isinstance(request.get("tool_choice"), dict):
        _replace_choice(request, request["tool_choice"])
    return request, CallForm(old, frozenset(custom)) if old or custom else None


def _replace_functions(request: dict[str, Any]) -> None:
    functions, choice = (request.pop(name, None) for name in OLD_FIELDS)
    if request.get("tools") or request.get("tool_choice"):
        raise wrong(OLD_FIELDS[0], "it is not served together with tools", "invalid_value")
    if functions is not None and not isinstance(functions, list):
        raise wrong(OLD_FIELDS[0], "it is no list")
    request["tools"] = [{"type": "function", "function": function} for function in functions or ()] or None
    request["tool_choice"] = {"type": "function", "function": choice} if isinstance(choice, dict) else choice
    request["parallel_tool_calls"] = False


def _of_type(value: Any, kind: str) -> dict[str, Any] | None:
    """The part of a tool, call or choice that its type names, if it is of this type."""
    inner = value.get(kind) if isinstance(value, dict) and value.get("type") == kind else None
    return inner if isinstance(inner, dict) else None


def _tool(tool: Any, place: str, custom: set[str]) -> Any:
    given = _of_type(tool, "custom")
    if given is None or not isinstance(given.get("name"), str):
        return tool
    form = given.get("format")
    if form is not None and (not isinstance(form, dict) or form.get("type") != "text"):
        raise wrong(f"{place}.custom.format", "a custom tool takes text; no grammar is served for it", "invalid_value")
    custom.add(given["name"])
    shown = {key: given[key] for key in ("name", "description") if given.get(key) is not None}
    return {"type": "function", "function": {**shown, "parameters": _INPUT}}


def _message(message: Any, place: str, _: set[str]) -> Any:
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list) or not any(_of_type(call, "custom") for call in calls):
        return message
    return {**message, "tool_calls": [_call_of_function(call) for call in calls]}


def _call_of_function(call: Any) -> Any:
    given = _of_type(call, "custom")
    if given is None:
        return call
    arguments = json.dumps({"input": given.get("input")}, ensure_ascii=False)
    return {"id": call.get("id"), "type": "function", "function": {"name": given.get("name"), "arguments": arguments}}


def _replace_choice(request: dict[str, Any], choice: Mapping[str, Any]) -> None:
    custom, allowed = _of_type(choice, "custom"), _of_type(choice, "allowed_tools")
    if custom is not None:
        request["tool_choice"] = {"type": "function", "function": custom}
    if allowed is None:
        return
    tools = allowed.get("tools")
    names = [_name(tool) for tool in tools] if isinstance(tools, list) else []
    kept = [tool for tool in request.get("tools") or () if _name(tool) in names]
    if not kept or allowed.get("mode") not in ("auto", "required"):
        reason = "it needs a mode ('auto' or 'required') and tools of the request"
        raise wrong("tool_choice.allowed_tools", reason, "invalid_value")
    request |= {"tools": kept, "tool_choice": allowed["mode"]}


def _name(tool: Any) -> Any:
    """The name of a tool of either type, or the tool itself if it has none."""
    for kind in ("function", "custom"):
        inner = _of_type(tool, kind)
        if inner is not None:
            return inner.get("name")
    return tool
