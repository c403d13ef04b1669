"""OpenAI's Responses, for text and function tools: a request becomes a chat, and the chat's answer a response.

Nothing is stored: a request has its whole dialogue in `input`.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from envs.text import map_texts, valid_text
from seal_ray.serving.limits import RefusedRequest, wrong
from seal_ray.serving.request_models import first_refusal

RESPONSE_IGNORED = frozenset(
    {
        *("include", "max_tool_calls", "metadata", "prompt_cache_key", "prompt_cache_options"),
        *("prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store", "stream_options"),
        *("truncation", "user"),
    }
)
"""Fields without effect; the response repeats `metadata`."""
_STORED = {
    "previous_response_id": "no response is stored; send the whole dialogue as input",
    "conversation": "no dialogue is stored; send it as input",
    "background": "a response is given at once",
    "prompt": "no prompt is stored; send its text as instructions",
}
"""Fields that need what is not there, and what to do."""
_SAME = ("model", "stream", "temperature", "top_p", "parallel_tool_calls")
_CHAT_NAMES = {
    **{"messages": "input", "max_completion_tokens": "max_output_tokens"},
    **{"response_format.json_schema": "text.format", "response_format": "text.format"},
}
"""Field of the chat → field of the Responses request that it comes from."""
_TEXTS = {
    "reasoning": ("reasoning_content", "reasoning_text", {}),
    "message": ("content", "output_text", {"annotations": [], "logprobs": []}),
}
"""Item of a response → its text's field in a chat's answer, the type of its part, and what else the part has."""


@with_config(ConfigDict(extra="forbid", strict=True))
class ResponseFields(TypedDict, total=False):
    """The fields of a Responses request that have an effect; those named as in a chat are checked there."""

    model: Any
    input: str | list[dict[str, Any]]
    instructions: str
    max_output_tokens: Any
    text: dict[str, Any]
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    stream: Any
    temperature: Any
    top_p: Any
    parallel_tool_calls: Any


_FIELDS = TypeAdapter(ResponseFields)


def chat_request(document: Any) -> tuple[dict[str, Any], "ResponseForm"]:
    """The chat of a Responses request, which is still to be checked, and the form of its answer.

    Raises `RefusedRequest` for a field or an item that no chat has.
    """
    if not isinstance(document, dict):
        raise RefusedRequest("body: it is no JSON object.", code="invalid_type")
    document = map_texts({name: value for name, value in document.items() if value is not None}, valid_text)
    for name, reason in _STORED.items():
        if document.pop(name, None):
            raise wrong(name, reason, "unsupported_parameter")
    given = {name: value for name, value in document.items() if name not in RESPONSE_IGNORED}
    try:
        _FIELDS.validate_python(given)
    except ValidationError as error:
        raise first_refusal(error, list(given)) from None
    chat = {name: given[name] for name in _SAME if name in given}
    chat["messages"] = _messages(given.get("input", []))
    if "instructions" in given:
        chat["messages"].insert(0, {"role": "system", "content": given["instructions"]})
    chat["max_completion_tokens"] = given.get("max_output_tokens")
    chat["stream_options"] = {"include_usage": True} if given.get("stream") else None
    chat["tools"] = [_nested(tool, f"tools[{index}]") for index, tool in enumerate(given.get("tools", ()))] or None
    choice = given.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
        tools = choice.get("tools")
        nested = [_nested(tool, "tool_choice.tools") for tool in tools] if isinstance(tools, list) else None
        choice = {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": nested}}
    elif isinstance(choice, dict):
        choice = _nested(choice, "tool_choice")
    chat["tool_choice"] = choice
    form = given.get("text", {}).get("format")
    chat["response_format"] = {**form, "json_schema": form} if isinstance(form, dict) else form
    return chat, ResponseForm(document)


def response_error(error: RefusedRequest) -> RefusedRequest:
    """The error of a chat, with the name that the field has in the Responses request."""
    for name, own in _CHAT_NAMES.items():
        if error.param and error.param.startswith(name):
            message, param = (text.replace(name, own, 1) for text in (str(error), error.param))
            return RefusedRequest(message, status=error.status, param=param, code=error.code)
    return error


def _nested(tool: Any, place: str) -> dict[str, Any]:
    """A tool or a choice of one as a chat has it."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    if kind != "function":
        raise wrong(f"{place}.type", f"{str(kind)[:80]!r} is not served; only functions are", "invalid_value")
    return {
        "type": kind,
        "function": {key: value for key, value in tool.items() if key != "type" and value is not None},
    }


def _messages(items: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a chat; the thoughts, the text and the calls of one answer are one message."""
    messages: list[dict[str, Any]] = []
    for index, item in enumerate([{"role": "user", "content": items}] if isinstance(items, str) else items):
        place, kind = f"input[{index}]", item.get("type", "message")
        if kind == "function_call_output":
            text = _text(item.get("output"), f"{place}.output")
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
        elif kind == "message" and item.get("role") != "assistant":
            messages.append({"role": item.get("role"), "content": _text(item.get("content"), f"{place}.content")})
        elif kind == "message":
            _answer(messages, "content")["content"] = _text(item.get("content"), f"{place}.content")
        elif kind == "reasoning":
            text = _text(item.get("content") or "", f"{place}.content")
            if text:
                _answer(messages, "reasoning_content")["reasoning_content"] = text
        elif kind == "function_call":
            function = {key: item.get(key) for key in ("name", "arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            _answer(messages, "").setdefault("tool_calls", []).append(call)
        else:
            raise wrong(f"{place}.type", f"{str(kind)[:80]!r} is not served", "invalid_value")
    return messages


def _answer(messages: list[dict[str, Any]], key: str) -> dict[str, Any]:
    """The last message if it is an answer that may still get this part, or else a new answer."""
    order = ("reasoning_content", "content", "tool_calls")
    later = order[order.index(key) :] if key else ()
    if not messages or messages[-1]["role"] != "assistant" or any(part in messages[-1] for part in later):
        messages.append({"role": "assistant"})
    return messages[-1]


def _text(content: Any, place: str) -> str:
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else [None]
    texts = [part if isinstance(part, str) else part.get("text") if isinstance(part, dict) else None for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise wrong(place, "only text is served", "invalid_value")
    return "\n".join(map(str, texts))


class ResponseForm:
    """A chat's answer as a response, or as the events of one."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._response: dict[str, Any] = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            **{"error": None, "incomplete_details": None, "usage": None, "previous_response_id": None},
            **{"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "temperature": 1.0, "top_p": 1.0},
            **{"instructions": None, "max_output_tokens": None, "metadata": {}, "text": {"format": {"type": "text"}}},
            **{name: value for name, value in document.items() if name in ResponseFields.__annotations__},
            "metadata": document.get("metadata") or {},
            "output": [],
            "store": False,
            "truncation": "disabled",
        }
        for name in ("input", "stream"):
            self._response.pop(name, None)
        self._open = False
        self._number = 0
        self._finish = "stop"

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        for choice in answer["choices"]:
            choice["delta"] = choice["message"]
        for chunk in (answer, None):
            list(self.events(chunk))
        return self._response

    def events(self, chunk: dict[str, Any] | None) -> Iterator[str]:
        for kind, fields in self._events(chunk):
            event = {"type": f"response.{kind}" if kind != "error" else kind, "sequence_number": self._number, **fields}
            self._number += 1
            yield f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n"

    def _events(self, chunk: dict[str, Any] | None) -> Iterator[tuple[str, dict[str, Any]]]:
        if not self._number:
            self._response["model"] = (chunk or {}).get("model", self._response.get("model"))
            for kind in ("created", "in_progress"):
                yield kind, {"response": self._response}
        if chunk is None:
            yield from self._end()
        elif "error" in chunk:
            error = {"code": "server_error", "message": str(chunk["error"].get("message"))}
            self._response |= {"status": "failed", "error": error}
            yield "failed", {"response": self._response}
        else:
            if chunk.get("usage"):
                self._response["usage"] = _usage(chunk["usage"])
            for choice in chunk["choices"]:
                yield from self._parts(choice["delta"])
                self._finish = choice.get("finish_reason") or self._finish

    def _parts(self, part: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        for kind, (key, _, _) in _TEXTS.items():
            if part.get(key):
                yield from self._text(kind, part[key])
        for call in part.get("tool_calls") or ():
            yield from self._close()
            name, arguments = (call["function"][key] for key in ("name", "arguments"))
            item = {"call_id": call["id"], "name": name, "arguments": "", "status": "in_progress"}
            yield from self._add("function_call", item)
            yield "function_call_arguments.delta", {**self._place(), "delta": arguments}
            yield "function_call_arguments.done", {**self._place(), "name": name, "arguments": arguments}
            self._last |= {"arguments": arguments, "status": "completed"}
            yield "output_item.done", {"output_index": self._place()["output_index"], "item": self._last}

    @property
    def _last(self) -> dict[str, Any]:
        item: dict[str, Any] = self._response["output"][-1]
        return item

    def _place(self) -> dict[str, Any]:
        return {"item_id": self._last["id"], "output_index": len(self._response["output"]) - 1}

    def _add(self, kind: str, item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        self._response["output"].append({"type": kind, "id": f"{kind}_{uuid.uuid4().hex}", **item})
        yield "output_item.added", {"output_index": self._place()["output_index"], "item": self._last}

    def _text(self, kind: str, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
        _, name, more = _TEXTS[kind]
        if not self._open or self._last["type"] != kind:
            yield from self._close()
            own = {"role": "assistant"} if kind == "message" else {"summary": []}
            yield from self._add(kind, {**own, "status": "in_progress", "content": []})
            self._open = True
            self._last["content"] = [{"type": name, "text": "", **more}]
            yield "content_part.added", {**self._place(), "content_index": 0, "part": self._last["content"][0]}
        self._last["content"][0]["text"] += text
        yield f"{name}.delta", {**self._place(), "content_index": 0, "delta": text, "logprobs": []}

    def _close(self, status: str = "completed") -> Iterator[tuple[str, dict[str, Any]]]:
        """The end of the item whose text arrives, if there is one."""
        if not self._open:
            return
        self._open = False
        self._last["status"] = status
        (part,) = self._last["content"]
        place = {**self._place(), "content_index": 0}
        yield f"{part['type']}.done", {**place, "text": part["text"], "logprobs": []}
        yield "content_part.done", {**place, "part": part}
        yield "output_item.done", {"output_index": place["output_index"], "item": self._last}

    def _end(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if self._response["status"] == "failed":
            return
        status = "incomplete" if self._finish == "length" else "completed"
        if not self._response["output"]:
            yield from self._text("message", "")
        yield from self._close(status)
        details = {"reason": "max_output_tokens"} if status == "incomplete" else None
        self._response |= {"status": status, "incomplete_details": details}
        yield status, {"response": self._response}


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
