"""From an OpenAI chat request to the token ids of its prompt, as training and evaluation would have them.

vLLM would show tools in another form, and render earlier answers through the chat template again. Here the policy's
`ChatFormat` renders the opening, then each answer as it was sampled, then the messages after it. An answer keeps its
sampled tokens as long as they are remembered; other text is tokenised.
"""

import hashlib
import json
import sys
from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from envs.dialects.base import read_json
from envs.dialogue import Message
from envs.errors import UserError
from envs.task import JSON, ToolCall, ToolDoc
from envs.text import valid_text
from policies.prompting import ChatFormat
from seal_ray.serving.answers import Thoughts
from seal_ray.serving.messages import call_of, content_of, thoughts_of

_ROLES = {"system": "system", "developer": "system", "user": "user"}
"""Role of a message → its name in the chat templates."""


class Prefix:
    """The first tokens of a prompt, with a running hash of them."""

    def __init__(self, token_ids: Sequence[int] = ()) -> None:
        self.token_ids: list[int] = []
        self._hash = hashlib.sha256()
        self.add(token_ids)

    def add(self, token_ids: Sequence[int]) -> None:
        self.token_ids.extend(token_ids)
        self._hash.update(array("l", token_ids).tobytes())

    def key(self, text: str) -> bytes:
        """The key of an answer of this text to this prompt."""
        whole = self._hash.copy()
        whole.update(text.encode("utf-8", "surrogatepass"))
        return whole.digest()


class AnswerMemory:
    """The tokens of the newest `most` answers, by prompt and text."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, array[int]] = OrderedDict()

    def keep(self, prompt: Sequence[int], text: str, token_ids: Sequence[int]) -> None:
        """Remembers an answer, and forgets the oldest if there are too many."""
        key = Prefix(prompt).key(text)
        self._kept[key] = array("i", token_ids)
        self._kept.move_to_end(key)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def find(self, prompt: Prefix, text: str) -> tuple[int, ...] | None:
        """The tokens of the answer of this text to this prompt, if they are remembered."""
        token_ids = self._kept.get(prompt.key(text))
        return None if token_ids is None else tuple(token_ids)


class TooLong(UserError):
    """A prompt has more tokens than there is room for; `what` is the part of the request."""

    def __init__(self, most: int, what: str = "messages: with their tools they have") -> None:
        super().__init__(f"{what} more than the {most} tokens that there is room for.")


class ServedFormat(ChatFormat):
    """A model's `ChatFormat` for messages of clients. Its errors are one sentence for the client."""

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Iterable[Mapping[str, JSON]],
        *,
        most: int = sys.maxsize,
    ) -> tuple[int, ...]:
        """The prompt of the next answer to OpenAI messages, with these tool documents.

        Raises:
            UserError: There are no messages, one that the template or the dialect cannot write, content that is not
                text, or a call without a name.
            TooLong: The prompt has more than `most` tokens; raised as early as possible.
        """
        shown = [ToolDoc(str(tool["name"]), "", tool, ()) for tool in tools]
        if self._is_longer(_characters(messages) + _characters([tool.document for tool in shown]), most):
            raise TooLong(most)
        if not messages:
            raise UserError("messages: there are none; an answer needs at least one.")
        heard: dict[int, Message] = {}
        prompt = Prefix()
        for index in _in_order_of_calls(messages):
            message = messages[index]
            if message.get("role") != "assistant":
                heard[index] = self._heard(message, index)
                continue
            self._ask(prompt, heard, shown)
            known = self._answers.find(prompt, self.as_written(message, index))
            prompt.add(self.completion(self.as_written(message, index, self.disarmed)) if known is None else known)
            heard = {}
            if len(prompt.token_ids) > most:
                raise TooLong(most)
        self._ask(prompt, heard, shown)
        if len(prompt.token_ids) > most:
            raise TooLong(most)
        return tuple(prompt.token_ids)

    def tokens(self, text: str) -> tuple[int, ...]:
        """The tokens of a text, special ones included; invalid Unicode becomes U+FFFD."""
        return super().tokens(valid_text(text))

    def plain(self, text: str, *, most: int, special: bool) -> tuple[int, ...]:
        """The tokens of a plain prompt. Raises `TooLong` for more than `most`."""
        too_long = TooLong(most, "prompt: it has")
        if self._is_longer(len(text), most):
            raise too_long
        token_ids = tuple(self._tokenizer.encode(valid_text(text), add_special_tokens=special))
        if len(token_ids) > most:
            raise too_long
        return token_ids

    @property
    def size(self) -> int:
        """Tokens in the vocabulary."""
        return len(self._tokenizer)

    @cached_property
    def thoughts(self) -> Thoughts:
        """How the template separates thoughts, if the dialect reads any."""
        if self.dialect.name != "qwen" or "</think>" not in str(self._tokenizer.chat_template):
            return Thoughts.NONE
        prompt = self._render([{"role": "user", "content": "Hello."}], add_generation_prompt=True)
        return Thoughts.OPEN if prompt.rstrip().endswith("<think>") else Thoughts.TAGGED

    @property
    def unspoken(self) -> frozenset[int]:
        """The control tokens that do not end an answer."""
        return self.control_ids - set(self.stop_token_ids)

    def _is_longer(self, characters: int, most: int) -> bool:
        """Whether so many characters are more than `most` tokens, whatever they are."""
        return characters > most * self._longest

    @cached_property
    def _longest(self) -> int:
        """Characters of the longest token."""
        return max(map(len, self._tokenizer.get_vocab()))

    def _ask(self, prompt: Prefix, heard: Mapping[int, Message], tools: Sequence[ToolDoc]) -> None:
        """Adds the messages before an answer, by their places in the request."""
        new = list(heard.values())
        try:
            prompt.add(self.continuation(new, tools=bool(tools)) if prompt.token_ids else self.opening(new, tools))
        except UserError as error:
            ends = (min(heard), max(heard)) if heard else ()
            place = " to ".join(dict.fromkeys(f"messages[{index}]" for index in ends)) or "messages"
            raise UserError(f"{place}: {str(error).removeprefix('model: ')}") from None

    def _heard(self, message: Mapping[str, Any], index: int) -> Message:
        role = message.get("role")
        if role in ("tool", "function"):
            return Message(self.dialect.result_role, content_of(message, f"messages[{index}]"))
        if role not in _ROLES:
            allowed = ", ".join([*_ROLES, "assistant", "tool"])
            raise UserError(f"messages[{index}].role: {role!r:.80} is not known; allowed are {allowed}.")
        return Message(_ROLES[role], content_of(message, f"messages[{index}]"))

    def keep(self, prompt: Sequence[int], message: Mapping[str, Any], token_ids: Sequence[int]) -> None:
        """Remembers the tokens of an answer to a prompt.

        Except for one whose message has only its first call, as with `parallel_tool_calls: false`.
        """
        calls = message.get("tool_calls")
        if calls and len(self.dialect.parse(self.text(token_ids)).calls) > len(calls):
            return
        try:
            text = self.as_written(message, 0)
        except UserError:  # a call without valid arguments, which its client could not send back either
            return
        ended = token_ids and token_ids[-1] in self.stop_token_ids
        # Most clients leave the thoughts out when they send an answer back.
        for written in {text, self.as_written({**message, "reasoning_content": ""}, 0)}:
            self._answers.keep(prompt, written, [*token_ids, *(() if ended else self.completion(""))])

    def as_written(self, message: Mapping[str, Any], index: int, shown: Callable[[str], str] = str) -> str:
        """An earlier answer as the model wrote it, from its parts, each changed by `shown`.

        In an answer of unknown origin text, names and arguments are disarmed, but not the markup around them.
        """
        content = self.thoughts.written(shown(thoughts_of(message, f"messages[{index}]")))
        content += shown(content_of(message, f"messages[{index}]"))
        calls = self._calls(list(message.get("tool_calls") or ()), f"messages[{index}].tool_calls", shown)
        joint = "\n" if content and calls and not content.endswith("\n") else ""
        return content + joint + calls

    @cached_property
    def _answers(self) -> AnswerMemory:
        return AnswerMemory()

    def _calls(self, calls: Sequence[Mapping[str, Any]], place: str, shown: Callable[[str], str]) -> str:
        parts = [call_of(call, f"{place}[{number}]")["function"] for number, call in enumerate(calls)]
        called = [(shown(part["name"]), shown(part["arguments"])) for part in parts]
        if self.dialect.name == "toolace":
            return self.dialect.render_calls(
                [ToolCall(name, _object(text, f"{place}[{number}]")) for number, (name, text) in enumerate(called)]
            )
        # Arguments stay as they are written, with mistakes: the parsers of JSON dialects pass them on unchanged.
        if self.dialect.name == "llama3_json":
            return "; ".join(f'{{"name": {json.dumps(name)}, "parameters": {text}}}' for name, text in called)
        return "\n".join(
            f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {text}}}\n</tool_call>' for name, text in called
        )


def _in_order_of_calls(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """The places of messages, with the results of several calls in the order of the calls, as in training."""
    begin, calls, keys = 0, dict[Any, int](), list[tuple[int, int]]()
    for index, message in enumerate(messages):
        is_result = message.get("role") == "tool"
        if not is_result:
            begin, calls = index, {call.get("id"): place for place, call in enumerate(message.get("tool_calls") or ())}
        keys.append((begin, calls.get(message.get("tool_call_id"), len(calls)) if is_result else -1))
    return sorted(range(len(messages)), key=keys.__getitem__)


def _object(text: str, place: str) -> dict[str, JSON]:
    try:
        value = read_json(text)
    except ValueError as error:
        raise UserError(f"{place}.function.arguments: they are not valid JSON ({error}).") from None
    if not isinstance(value, dict):
        raise UserError(f"{place}.function.arguments: they are no JSON object.")
    return value


def is_small(value: Any, most: int) -> bool:
    """Whether a JSON value has at most so many characters (keys included) and values. Stops soon after."""
    left = most
    for each in _values(value):
        texts = [each] if isinstance(each, str) else each if isinstance(each, Mapping) else ()
        left -= 1 + sum(map(len, texts))
        if left < 0:
            return False
    return True


def _characters(value: Any) -> int:
    """Characters of all texts in a JSON value."""
    return sum(len(each) for each in _values(value) if isinstance(each, str))


def _values(value: Any) -> Iterator[Any]:
    """A JSON value and all values inside it, without the keys of objects."""
    inside = [iter((value,))]
    while inside:
        for each in inside[-1]:
            yield each
            if isinstance(each, Mapping):
                inside.append(iter(each.values()))
                break
            if isinstance(each, list | tuple):
                inside.append(iter(each))
                break
        else:
            inside.pop()
