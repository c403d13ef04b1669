"""Served answers have the calls and the content that training reads from the same text, whole and streamed."""

import json
import random
from collections.abc import AsyncGenerator, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from envs.dialects import DIALECTS
from envs.dialects.base import arguments_json
from envs.task import ToolCall
from seal_ray.serving.answers import AnswerReader, AnswerRules, AnswerWriter, Thoughts
from tests.seal_ray.serving.answer_texts import EARLIEST, FOUND, texts

MUTATIONS = 10_000
PIECES = (
    "<tool_call>\n", "\n</tool_call>", "<tool_call>", "</think>", "<think>", "<|python_tag|>", "[ls()]", "ls(a=1)",
    "```", '{"name": "ls", "arguments": {}}', '{"name": "ls", "parameters": {}}', "\n", "; ", ", ", "'", '"',
    "\\", "{", "}", "[", "]", "(", ")", '"""', "'''", "#", ".", "..", "nan", "NaN", "1e999", "-", "x", "é", "`", ":",
    "=", "*", "null", 'r"', "\r", "\t", "I will", "lambda", "\ud83d\ude00", "\u00a0", "·",
)  # fmt: skip

Shown = tuple[str, str, list[tuple[str, str]]]
"""Thoughts, content, and (name, arguments as JSON) of each call."""


def trained(form: AnswerRules, text: str, *, is_cut: bool = False) -> Shown:
    """What training acts on, and the rest of the text."""
    parsed = form.dialect.parse(text)
    acts = form.with_tools and not is_cut
    thoughts, content = form.thoughts.separate(parsed.content(text) if acts else text, is_whole=True)
    calls = [(call.name, arguments_json(call)) for call in parsed.calls] if acts else []
    return thoughts, content, calls


async def answered(form: AnswerRules, chunks: Iterable[str], finish: str, *, stream: bool) -> Shown:
    """The answer of the server to these chunks of a completion."""

    async def streamed() -> AsyncGenerator[list[str], None]:
        choices: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": ""}}]
        choices += [{"delta": {"content": chunk}, "token_ids": [1]} for chunk in chunks]
        choices.append({"delta": {"content": ""}, "finish_reason": finish, "stop_reason": None})
        for choice in choices:
            yield [f"data: {json.dumps({'id': 'x', 'choices': [{'index': 0, **choice}]})}\n\n"]
        yield ["data: [DONE]\n\n"]

    async def whole() -> AsyncGenerator[Any, None]:
        message = SimpleNamespace(content="".join(chunks), tool_calls=[], reasoning_content="")
        choice = SimpleNamespace(index=0, message=message, token_ids=[1], finish_reason=finish, stop_reason=None)
        yield SimpleNamespace(choices=[choice], prompt_token_ids=None)

    kept: list[AnswerReader] = []
    writer = AnswerWriter(form, kept.append, show_tokens=False)
    parts = [part async for part in writer.answers(streamed() if stream else whole())]
    assert len(kept) == 1
    assert all(parts), "Ray fails for an empty list"
    if not stream:
        (choice,) = parts[0].choices
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls]
        reason = choice.finish_reason
        shown = choice.message.reasoning_content, choice.message.content or "", calls
    else:
        events = [event for part in parts for event in part]
        assert events.pop() == "data: [DONE]\n\n"
        choices = [json.loads(event.removeprefix("data: "))["choices"][0] for event in events]
        entries = [call for each in choices for call in each["delta"].get("tool_calls", ())]
        assert all(len(each["delta"].get("tool_calls", ())) <= 1 for each in choices)
        assert [entry["index"] for entry in entries] == list(range(len(entries)))
        assert [each["finish_reason"] for each in choices[:-1]] == [None] * (len(choices) - 1)
        reason = choices[-1]["finish_reason"]
        said = [[each["delta"].get(key) or "" for each in choices] for key in ("reasoning_content", "content")]
        calls = [(entry["function"]["name"], entry["function"]["arguments"]) for entry in entries]
        shown = "".join(said[0]), "".join(said[1]), calls
    assert reason == ("tool_calls" if calls and finish == "stop" else finish)
    return shown


def in_chunks(text: str, rng: random.Random) -> list[str]:
    """The text in pieces of one to five characters, as tokens are."""
    chunks = []
    while text:
        size = rng.choice([1, 1, 2, 3, 5])
        chunks.append(text[:size])
        text = text[size:]
    return chunks


@pytest.mark.parametrize(("dialect", "text", "content", "calls"), FOUND, ids=[ascii(row[:2])[:70] for row in FOUND])
def test_an_answer_has_the_calls_that_training_acts_on(
    dialect: str, text: str, content: str, calls: Sequence[ToolCall]
) -> None:
    parsed = DIALECTS[dialect].parse(text)
    assert parsed.calls == tuple(calls)
    assert parsed.content(text) == content


@pytest.mark.anyio
@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_whole_and_streamed_answers_are_what_training_reads(dialect: str, finish: str) -> None:
    rng = random.Random(0)
    cases = texts(dialect)
    assert len(cases) >= 60
    for thoughts in Thoughts if dialect == "qwen" else (Thoughts.NONE,):
        form = AnswerRules(DIALECTS[dialect], thoughts)
        for text in cases:
            expected = trained(form, text, is_cut=finish == "length")
            for chunks in ([text], list(text), in_chunks(text, rng)):
                assert await answered(form, chunks, finish, stream=True) == expected, text
                assert await answered(form, chunks, finish, stream=False) == expected, text


@pytest.mark.parametrize("dialect", DIALECTS)
def test_random_texts_are_read_alike_in_parts_and_whole(dialect: str) -> None:
    rng = random.Random(1)
    cases = texts(dialect)
    for _ in range(MUTATIONS // len(DIALECTS) + 1):
        text = rng.choice(cases)
        for _ in range(rng.choice([1, 1, 2, 4])):
            place = rng.randrange(len(text) + 1)
            gap = 0 if rng.random() < 0.6 else rng.randrange(1, 6)
            text = text[:place] + (rng.choice(PIECES) if gap == 0 else "") + text[place + gap :]
        form = AnswerRules(DIALECTS[dialect], rng.choice(list(Thoughts)))
        reader = AnswerReader(form)
        parts = [reader.add(chunk) for chunk in in_chunks(text, rng)]
        assert not any(part.calls for part in parts)
        parts.append(reader.end(is_cut=False))
        calls = [(call.name, arguments_json(call)) for call in reader.calls]
        sent = "".join(part.thoughts for part in parts), "".join(part.content for part in parts)
        assert (*sent, calls) == trained(form, text), text


@pytest.mark.parametrize(("dialect", "parts"), EARLIEST, ids=[ascii(row)[:70] for row in EARLIEST])
def test_text_is_sent_at_once_unless_it_may_belong_to_a_call(dialect: str, parts: Sequence[tuple[str, str]]) -> None:
    reader = AnswerReader(AnswerRules(DIALECTS[dialect], Thoughts.TAGGED if dialect == "qwen" else Thoughts.NONE))
    for text, sent in parts:
        part = reader.add(text)
        assert part.thoughts + part.content == sent, text


def test_without_tools_or_with_a_forced_call_the_markup_has_no_meaning() -> None:
    dialect = DIALECTS["qwen"]
    text = dialect.render_calls([ToolCall("ls", {})])
    plain = AnswerReader(AnswerRules(dialect, with_tools=False))
    assert plain.add(text).content == text
    assert plain.end(is_cut=False).calls == ()
    listed = '[{"name": "ls", "parameters": {"a": 1}}, {"name": "cd", "parameters": {}}]'
    for forced, form in ((True, listed), ("ls", '{"a": 1}')):
        for is_cut in (False, True):
            reader = AnswerReader(AnswerRules(dialect, forced=forced, parallel=False))
            assert reader.add(form) == reader.add("")
            reader.end(is_cut=is_cut)
            assert reader.calls == (() if is_cut else (ToolCall("ls", {"a": 1}),))
            assert reader.content == (form if is_cut else "")
