"""Messages of clients: nothing that one says is lost in silence."""

from typing import Any

import pytest
from ray.serve.llm.openai_api_models import ChatCompletionRequest

from envs.dialects import DIALECTS
from policies import tiny
from seal_ray.serving.limits import RefusedRequest
from seal_ray.serving.messages import check_message, content_of, thoughts_of
from seal_ray.serving.prompt import ServedFormat

REDACTED = {"type": "redacted_thinking", "data": "x"}
THOUGHTS = {"type": "thinking", "thinking": "Why?", "signature": "x"}
CALL = {"id": "call", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
REASON = {"reasoning_content": "Why?"}


@pytest.mark.parametrize(
    ("given", "checked"),
    [
        ({"content": "So.", "reasoning_content": "Why?"}, REASON),
        ({"content": "So.", "reasoning": "Why?", "reasoning_content": None}, REASON),
        ({"content": "So.", "reasoning_content": "Why?", "thinking_blocks": [THOUGHTS]}, REASON),
        ({"content": "So.", "thinking_blocks": [THOUGHTS]}, REASON),
        ({"content": [{"type": "reasoning", "text": "Why?"}, {"type": "text", "text": "So."}]}, REASON),
        ({"content": [{"type": "reasoning", "reasoning": "Why?"}, "So."]}, REASON),
        ({"content": [THOUGHTS, {"type": "output_text", "text": "So.", "annotations": []}]}, REASON),
        ({"content": None, "refusal": "No."}, {"content": "No."}),
        ({"content": [{"type": "refusal", "refusal": "No."}]}, {"content": "No."}),
        ({"content": "So.", "refusal": "No."}, {"content": "So.\nNo."}),
        ({"content": "So.", "function_call": {"name": "ls", "arguments": "{}"}}, {"tool_calls": [CALL]}),
        ({"content": "So.", "tool_calls": [CALL], "function_call": CALL["function"]}, {"tool_calls": [CALL, CALL]}),
        ({"content": "So.", "audio": None, "annotations": [], "tool_calls": None, "name": "x", "id": "y"}, {}),
    ],
)
def test_all_that_an_answer_says_is_in_the_checked_message(given: dict[str, Any], checked: dict[str, Any]) -> None:
    message = check_message({"role": "assistant", **given}, "messages[0]")
    assert message == {"role": "assistant", "content": "So.", **checked}
    # What vLLM makes of it comes to the prompt.
    (passed,) = ChatCompletionRequest.model_validate({"model": "m", "messages": [{**message}]}).messages
    assert isinstance(passed, dict)
    for read, key in ((content_of, "content"), (thoughts_of, "reasoning_content")):
        assert read(passed, "") == message.get(key, "")
    form = ServedFormat.load(tiny.FOLDER, DIALECTS["qwen"])
    written = form.as_written(passed, 0)
    assert written.startswith("<think>\nWhy?\n</think>\n\n" if "reasoning_content" in message else message["content"])
    assert written == form.as_written(message, 0)


@pytest.mark.parametrize(
    ("role", "given", "sentence"),
    [
        ("assistant", {"thinking_blocks": [REDACTED]}, ".thinking_blocks[0]: only text"),
        ("assistant", {"audio": {"id": "a"}}, ".audio: it is not served in messages of the role 'assistant'"),
        ("assistant", {"reasoning_content": ["x"]}, ".reasoning_content: it is no text"),
        ("assistant", {"refusal": {}}, ".refusal: it is no text"),
        ("assistant", {"function_call": {"arguments": "{}"}}, ".function_call: a call needs a function with a name"),
        ("assistant", {"content": [{"type": "reasoning", "summary": []}]}, ".content[0]: only text is served"),
        ("user", {"content": ["x", {"type": "reasoning", "text": "x"}]}, ".content[1]: only text is served"),
        ("user", {"content": [{"type": ["text"]}]}, ".content[0]: only text is served"),
        ("user", {"content": 5}, ".content[0]: only text is served"),
        ("user", {"reasoning_content": "x"}, ".reasoning_content: it is not served in messages of the role 'user'"),
        ("tool", {"content": "x", "tool_calls": [CALL]}, ".tool_calls: it is not served in messages"),
        ("system", {"content": "x", "prefix": True}, ".prefix: it is not served"),
    ],
)
def test_what_would_be_lost_is_refused_by_its_name(role: str, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RefusedRequest) as refused:
        check_message({"role": role, **given}, "messages[3]")
    assert str(refused.value).startswith(f"messages[3]{sentence}")
    assert refused.value.param == f"messages[3]{sentence.partition(':')[0]}"
