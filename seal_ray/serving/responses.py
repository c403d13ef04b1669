"""OpenAI's Responses, for text and function tools: a request becomes a chat, and the chat's answer a response.

Nothing is stored: a request has its whole dialogue in `input`.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ConfigDict, ValidationError, create_model

from envs.text import map_texts, valid_text
from seal_ray.serving.limits import RefusedRequest, wrong
from seal_ray.serving.messages import check_message, content_of
from seal_ray.serving.request_models import IGNORED, first_refusal

RESPONSE_IGNORED = IGNORED | {"include", "max_tool_calls", "reasoning", "stream_options", "truncation"}
"""Fields without effect; the response repeats `metadata`."""
_STORED = {
    "previous_response_id": "no response is stored; send the whole dialogue as input",
    "conversation": "no dialogue is stored; send it as input",
    "background": "a response is given at once",
    "prompt": "no prompt is stored; send its text as instructions",
}
"""Fields that need a store of responses or prompts, and the remedy."""
_FROM_CHAT = {
    ".function.parameters": ".parameters",
    **dict.fromkeys(("response_format.json_schema", "response_format"), "text.format"),
    "messages": "input",
    "max_completion_tokens": "max_output_tokens",
}
"""Part of the name of a chat's field → what the field is called in the Responses request; the first counts."""
_ANSWER = ("reasoning_content", "content", "tool_calls")
"""The parts of an answer in a chat, in their order."""
_SAME = ("model", "stream", "temperature", "top_p", "parallel_tool_calls")
"""Fields of a chat too, which are checked there."""
_fields: dict[str, Any] = {
    **dict.fromkeys((*_SAME, "max_output_tokens", *sorted(RESPONSE_IGNORED), *_STORED), (Any, None)),
    "input": (str | list[dict[str, Any]], []),
    "instructions": (str, None),
    "text": (dict[str, Any], {}),
    "tools": (list[dict[str, Any]], []),
    "tool_choice": (str | dict[str, Any], None),
}
ResponseFields = create_model("ResponseFields", __config__=ConfigDict(extra="forbid", strict=True), **_fields)


def chat_request(document: Any) -> tuple[dict[str, Any], "ResponseForm"]:
    """The chat of a Responses request, which is still to be checked, and the form of its answer.

    Raises `RefusedRequest` for a field or an item that no chat has.
    """
    if not isinstance(document, dict):
        raise RefusedRequest("body: it is no JSON object.", code="invalid_type")
    if document.get("input") is None:
        raise RefusedRequest("input: it is missing.", param="input", code="missing_required_parameter")
    document = map_texts({name: value for name, value in document.items() if value is not None}, valid_text)
    try:
        given: Any = ResponseFields.model_validate(document)
    except ValidationError as error:
        raise first_refusal(error, list(document)) from None
    for name, reason in _STORED.items():
        if document.get(name):
            raise wrong(name, reason, "unsupported_parameter")
    instructions = [{"role": "system", "content": given.instructions}] if given.instructions else []
    form = given.text.get("format")
    chat = {
        **{name: document[name] for name in _SAME if name in document},
        "max_completion_tokens": given.max_output_tokens,
        "messages": instructions + _messages(given.input),
        "stream_options": {"include_usage": True} if given.stream else None,
        "tools": [_nested(tool, f"tools[{index}]") for index, tool in enumerate(given.tools)] or None,
        "tool_choice": _choice(given.tool_choice),
        "response_format": {**form, "json_schema": form} if isinstance(form, dict) else form,
    }
    return chat, ResponseForm(document)


def response_error(error: RefusedRequest) -> RefusedRequest:
    """The error of a chat, with the name that the field has in the Responses request."""
    for name, own in _FROM_CHAT.items():
        if name in (error.param or ""):
            message, param = (text.replace(name, own, 1) for text in (str(error), str(error.param)))
            return RefusedRequest(message, status=error.status, param=param, code=error.code)
    return error


def _choice(choice: Any) -> Any:
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return _nested(choice, "tool_choice") if isinstance(choice, dict) else choice
    tools = choice.get("tools")
    nested = [_nested(tool, "tool_choice.tools") for tool in tools] if isinstance(tools, list) else None
    return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": nested}}


def _nested(tool: Any, place: str) -> dict[str, Any]:
    """A tool or a choice of one as a chat has it."""
    if not isinstance(tool, dict) or tool.get("type") != "function":
        raise wrong(f"{place}.type", "only functions are served", "invalid_value")
    function = {key: value for key, value in tool.items() if key != "type" and value is not None}
    return {"type": "function", "function": function}


def _messages(items: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a chat; the thoughts, the text and the calls of one answer are one message."""
    messages: list[dict[str, Any]] = []
    for index, item in enumerate([{"role": "user", "content": items}] if isinstance(items, str) else items):
        place, kind = f"input[{index}]", item.get("type", "message")
        if kind == "function_call_output":
            text = content_of({"content": item.get("output")}, f"{place}.output")
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": text})
        elif kind == "function_call":
            function = {key: item.get(key) for key in ("name", "arguments")}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            _answer(messages, ()).setdefault("tool_calls", []).append(call)
        elif kind == "reasoning":
            parts = item.get("content") or item.get("summary")
            if isinstance(parts, list):
                parts = [{**part, "type": "text"} if isinstance(part, dict) else part for part in parts]
            if thoughts := content_of({"content": parts}, place):
                _answer(messages, _ANSWER)["reasoning_content"] = thoughts
        elif kind != "message":
            raise wrong(f"{place}.type", f"{str(kind)[:80]!r} is not served", "invalid_value")
        elif item.get("role") == "assistant":
            _answer(messages, _ANSWER[1:])["content"] = content_of(item, place)
        else:
            messages.append(check_message({"role": item.get("role"), "content": content_of(item, place)}, place))
    return messages


def _answer(messages: list[dict[str, Any]], parts: tuple[str, ...]) -> dict[str, Any]:
    """The last message if it is an answer without any of these parts, or else a new answer."""
    if not messages or messages[-1]["role"] != "assistant" or any(part in messages[-1] for part in parts):
        messages.append({"role": "assistant"})
    return messages[-1]


class ResponseForm:
    """A chat's answer as a response, or as the events of one."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        # Not above: Serve's proxies import this file too, and need no PyTorch.
        from vllm.entrypoints.openai.responses.streaming_events import SimpleStreamingEventProcessor

        shown = ("instructions", "text", "tools", "tool_choice", "metadata", "max_output_tokens", *_SAME[2:])
        unset = {"tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "metadata": {}}
        given = {name: document[name] for name in shown if name in document}
        own = {"id": f"resp_{uuid.uuid4().hex}", "object": "response", "created_at": int(time.time()), "store": False}
        self._response: dict[str, Any] = unset | given | own | {"output": [], "status": "in_progress"}
        self._items = SimpleStreamingEventProcessor()
        self._number = 0
        self._finish = "stop"

    def whole(self, answer: dict[str, Any]) -> dict[str, Any]:
        for choice in answer["choices"]:
            choice["delta"] = choice["message"]
        for chunk in (answer, None):
            list(self.events(chunk))
        return self._response

    def events(self, chunk: dict[str, Any] | None) -> Iterator[str]:
        for event in self._events(chunk):
            yield f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': self._number})}\n\n"
            self._number += 1

    def _events(self, chunk: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
        if not self._number:
            self._response["model"] = (chunk or {}).get("model", self._response.get("model"))
            for kind in ("created", "in_progress"):
                yield {"type": f"response.{kind}", "response": self._response}
        ended = None
        if chunk is None and self._response["status"] == "in_progress":
            yield from _dumped(self._items.close_current())
            ended = "incomplete" if self._finish == "length" else "completed"
            details = {"reason": "max_output_tokens"} if ended == "incomplete" else None
            self._response |= {"output": _dumped(self._items.output_items), "incomplete_details": details}
        elif chunk and "error" in chunk:
            ended = "failed"
            self._response["error"] = {"code": "server_error", "message": str(chunk["error"].get("message"))}
        elif chunk:
            if chunk.get("usage"):
                self._response["usage"] = _usage(chunk["usage"])
            for choice in chunk["choices"]:
                yield from self._parts(choice["delta"])
                self._finish = choice.get("finish_reason") or self._finish
        if ended:
            self._response["status"] = ended
            yield {"type": f"response.{ended}", "response": self._response}

    def _parts(self, part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """The events for a part of an answer, by the state machine of vLLM's own Responses."""
        from vllm.entrypoints.generate.base.protocol import DeltaMessage
        from vllm.entrypoints.openai.responses.streaming_events import split_delta

        calls = [{"index": place, **call} for place, call in enumerate(part.get("tool_calls") or ())]
        texts = {"reasoning": part.get("reasoning_content") or None, "content": part.get("content") or None}
        for delta in split_delta(DeltaMessage(**texts, tool_calls=calls)):
            state, call = self._items.resolve_target_state(delta)
            if state.name == "NONE":
                continue
            if self._items.needs_transition(state, call):
                yield from _dumped(self._items.close_current() + self._items.open(state, call))
            yield from _dumped(self._items.emit_delta(delta, None))


def _dumped(models: list[Any]) -> list[dict[str, Any]]:
    return [model.model_dump(mode="json", exclude_none=True) for model in models]


def _usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    return {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage["total_tokens"],
    }
