"""Dialogues in any order of messages: each is shown where the template can show it, or refused by its name."""

import copy
import re
from functools import cache
from typing import Any

import pytest

from envs.dialects import DIALECTS
from envs.errors import UserError
from policies import tiny
from seal_ray.serving.prompt import ServedFormat
from tests.policies.chat_models import chat_tokenizer

HELLO = {"role": "user", "content": "Hello."}
TOOL = {"name": "ls", "description": "List files.", "parameters": {"type": "dict", "properties": {}, "required": []}}
GREETING = {"role": "assistant", "content": "Hi, how can I help?"}
POLICY, LATER = ({"role": role, "content": f"The {role}'s policy."} for role in ("system", "developer"))
DONE = {"role": "tool", "content": "done", "tool_call_id": "a"}
ACTED = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "ls", "arguments": "{}"}}]}
ORDERS: dict[str, list[dict[str, Any]]] = {
    "tau2": [POLICY, GREETING, HELLO, ACTED, DONE, GREETING, HELLO],
    "a greeting alone": [GREETING],
    "a greeting first": [GREETING, HELLO],
    "a system message alone": [POLICY],
    "an answer last": [HELLO, GREETING],
    "two answers": [HELLO, GREETING, ACTED, DONE, GREETING, GREETING, HELLO],
    "two system messages": [POLICY, LATER, HELLO],
    "system messages later": [HELLO, POLICY, GREETING, LATER],
    "two of the user": [HELLO, HELLO, GREETING, HELLO, HELLO],
}
TEMPLATES = {
    "strict": "{% for m in messages %}"
    "{% if m.role == 'system' or (m.role == 'user' and not loop.first and loop.previtem.role == 'user') %}"
    "{{ raise_exception('roles must alternate between user and assistant') }}{% else %}",
    "silent": "{% for m in messages %}{% if m.role != 'system' or loop.first %}",
}
"""The begin of templates that refuse system messages, and two of the user's in succession, or leave later ones out."""


@cache
def format_of(model: str) -> ServedFormat:
    if model == "tiny":
        return ServedFormat.load(tiny.FOLDER, DIALECTS["qwen"])
    if model not in TEMPLATES:
        tokenizer = chat_tokenizer("qwen" if model == "qwen" else "llama3_json")
        return ServedFormat(tokenizer, DIALECTS[model], name=model)
    tokenizer = copy.deepcopy(chat_tokenizer("qwen"))
    tokenizer.chat_template = TEMPLATES[model] + (
        "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    return ServedFormat(tokenizer, DIALECTS["qwen"], name=model)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tools", [[], [TOOL]])
@pytest.mark.parametrize("model", ["tiny", "llama3_json", "toolace", *TEMPLATES])
def test_every_order_of_messages_is_a_prompt_that_has_all_of_them(model: str, tools: list[Any], order: str) -> None:
    form = format_of(model)
    text = form.text(form.prompt(ORDERS[order], tools))
    begin = form.text(form.continuation(())).lstrip("\n")
    (end,) = form.completion("")
    assert text.endswith(begin)
    assert text.count(begin) == 1 + sum(message["role"] == "assistant" for message in ORDERS[order])
    assert not tools or model in TEMPLATES or re.search(r'"ls"|ls\(\)', text.partition("Hello")[0])
    for message in ORDERS[order]:
        said = form.as_written(message, 0)
        before, found, text = text.partition(said)
        assert found, said
        if message["role"] == "assistant":
            assert before.endswith(begin)
            assert text.startswith(form.text([end, end]))


@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_llama_shows_tools_of_a_dialogue_that_a_greeting_begins_in_an_empty_user_message(tools: Any) -> None:
    messages = ORDERS["tau2"]
    call = {"function": {"name": "ls", "arguments": {}}}
    chat = [{**message, **({"tool_calls": [call]} if message is ACTED else {})} for message in messages]
    if tools:
        chat.insert(1, {"role": "user", "content": ""})
    official = chat_tokenizer("llama3_json").apply_chat_template(
        chat, tools=tools, tokenize=False, add_generation_prompt=True
    )
    form = format_of("llama3_json")
    assert form.text(form.prompt(messages, tools or [])) == official


def test_an_answer_to_an_odd_order_keeps_its_tokens() -> None:
    form = format_of("llama3_json")
    for messages in ([POLICY], [POLICY, GREETING], [GREETING]):
        before = form.prompt(messages, [TOOL])
        sampled = [token for letter in "Hello." for token in form.tokens(letter)]
        answer = {"role": "assistant", "content": "Hello."}
        form.keep(before, answer, sampled)
        assert form.prompt([*messages, answer, HELLO], [TOOL])[: len(before) + len(sampled)] == (*before, *sampled)


def test_results_are_in_the_order_of_their_calls() -> None:
    calls = [{"id": name, "function": {"name": "ls", "arguments": "{}"}} for name in "abc"]
    results = {name: {"role": "tool", "content": f"of {name}", "tool_call_id": name} for name in "abcd"}
    begin: list[dict[str, Any]] = [HELLO, {"role": "assistant", "tool_calls": calls}]
    form = format_of("qwen")
    wanted = form.prompt([*begin, *results.values(), HELLO], [TOOL])
    assert form.prompt([*begin, *(results[name] for name in "dbca"), HELLO], [TOOL]) == wanted


def test_a_message_that_a_template_refuses_is_named() -> None:
    tokenizer = copy.deepcopy(chat_tokenizer("qwen"))
    refusal = "{% for m in messages %}{% if 'odd' in m.content %}{{ raise_exception('odd') }}{% endif %}{% endfor %}"
    tokenizer.chat_template = refusal + tokenizer.chat_template
    form = ServedFormat(tokenizer, DIALECTS["qwen"], name="it")
    odd = {"role": "user", "content": "odd"}
    for messages, place in (([HELLO, GREETING, odd], "messages[2]"), ([HELLO, odd], "messages[0] to messages[1]")):
        with pytest.raises(UserError, match=f"^{re.escape(place)}: the chat template of it refuses .* \\(odd\\)"):
            form.prompt(messages, [])
