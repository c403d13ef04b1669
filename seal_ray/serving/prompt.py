"""From an OpenAI chat request to the token ids of its prompt: those that training and evaluation would have used.

vLLM's own rendering would show tools in another shape, and read an earlier answer through the chat template again. Here
the policy's `ChatFormat` does it: the opening, then each answer as it was said, then what came after it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from envs.dialects import Dialect
from envs.dialects.base import read_json
from envs.dialogue import Message
from envs.errors import UserError
from envs.task import JSON, ToolCall, ToolDoc
from policies.prompting import ChatFormat

_ROLES = {"system": "system", "developer": "system", "user": "user"}
"""Role of a message → the role that the chat templates know it by."""


class ServedFormat(ChatFormat):
    """A model's `ChatFormat` for messages that come from outside. Its errors are for the client: one sentence each."""

    @classmethod
    def of(cls, folder: Path, dialect: Dialect) -> ServedFormat:
        """The format of a model folder. Raises `UserError` as `load` does."""
        made = cls.load(folder, dialect)
        assert isinstance(made, ServedFormat)
        return made

    def prompt(self, messages: Sequence[Mapping[str, Any]], tools: Iterable[Mapping[str, JSON]]) -> tuple[int, ...]:
        """The prompt of the next answer to OpenAI messages, with these tool documents.

        Raises `UserError` for messages that no dialogue can have: none, an answer at either end, content that is not
        text, a call whose arguments are no JSON object.
        """
        shown = [ToolDoc(str(tool["name"]), "", tool, ()) for tool in tools]
        heard: list[Message] = []
        token_ids: tuple[int, ...] = ()
        for index, message in enumerate(messages):
            if message.get("role") != "assistant":
                heard.append(self._heard(message, index))
                continue
            token_ids += self._ask(heard, shown, begun=bool(token_ids), index=index)
            token_ids += self.completion(self._said(message, index))
            heard = []
        return token_ids + self._ask(heard, shown, begun=bool(token_ids), index=len(messages))

    def _ask(self, heard: Sequence[Message], tools: Sequence[ToolDoc], *, begun: bool, index: int) -> tuple[int, ...]:
        if not heard:
            place = f"messages[{index - 1}]" if index else "messages"
            raise UserError(f"{place}: an answer needs a message of the user's or a tool's before it and after it.")
        return self.continuation(heard) if begun else self.opening(heard, tools)

    def _heard(self, message: Mapping[str, Any], index: int) -> Message:
        role = message.get("role")
        if role in ("tool", "function"):
            return Message(self.dialect.result_role, _text(message, index))
        if role not in _ROLES:
            allowed = ", ".join([*_ROLES, "assistant", "tool"])
            raise UserError(f"messages[{index}].role: {role!r:.80} is not known; allowed are {allowed}.")
        return Message(_ROLES[role], _text(message, index))

    def _said(self, message: Mapping[str, Any], index: int) -> str:
        """An earlier answer as the model wrote it, from the parts that it was taken apart into."""
        content = _text(message, index)
        calls = self._calls(list(message.get("tool_calls") or ()), f"messages[{index}].tool_calls")
        joint = "\n" if content and calls and not content.endswith("\n") else ""
        # An answer may hold control tokens: the model can sample them. One that ends an answer, it cannot have said.
        return self._ends.sub(lambda match: f"{match[0][0]} {match[0][1:]}", content + joint + calls)

    @cached_property
    def _ends(self) -> re.Pattern[str]:
        return re.compile("|".join(re.escape(self._tokenizer.decode([end])) for end in self.stop_token_ids))

    def _calls(self, calls: Sequence[Mapping[str, Any]], place: str) -> str:
        called = [_call(call, f"{place}[{number}]") for number, call in enumerate(calls)]
        if self.dialect.name == "toolace":
            return self.dialect.render_calls([ToolCall(name, read_json(arguments)) for name, arguments in called])
        # Arguments stay as they are written: the parsers of JSON dialects hand them on unchanged.
        if self.dialect.name == "llama3_json":
            return "; ".join(f'{{"name": {json.dumps(name)}, "parameters": {text}}}' for name, text in called)
        return "\n".join(
            f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {text}}}\n</tool_call>' for name, text in called
        )


def _text(message: Mapping[str, Any], index: int) -> str:
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    parts = list(content)
    if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
        raise UserError(f"messages[{index}].content: only text is served.")
    return "\n".join(part["text"] for part in parts)


def _call(call: Mapping[str, Any], place: str) -> tuple[str, str]:
    """Name and arguments of a call, the arguments as JSON text."""
    function = call.get("function")
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str):
        raise UserError(f"{place}: a call needs a function with a name.")
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    try:
        value = read_json(text)
    except ValueError as error:
        raise UserError(f"{place}.function.arguments: they are not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise UserError(f"{place}.function.arguments: they are no JSON object.")
    return name, text
