"""The real server with a model that says given texts: its answers are what training reads. Run by `make clients`."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from envs.dialects import DIALECTS
from seal_ray.serving.answers import AnswerRules
from tests.conftest import TABLE
from tests.seal_ray.serving.answer_texts import texts
from tests.seal_ray.serving.scripted_model import request_for, scripted_model
from tests.seal_ray.serving.servers import KEY, joined, serving
from tests.seal_ray.serving.test_answers import Shown, trained
from tests.watched import SECRETS

pytestmark = [
    pytest.mark.long,
    pytest.mark.only_by(target="clients"),
]
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("ls", "cd")
]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_the_server_s_answers_are_what_training_reads(dialect: str, tmp_path: Path, record_property: Any) -> None:
    cases = texts(dialect)
    model = scripted_model(tmp_path / "model", cases)
    form = AnswerRules(DIALECTS[dialect])
    command = ("serve", str(model), "--model-name", "scripted", "--dialect", dialect)
    with serving(tmp_path, *command, environment=SECRETS) as server, server.client(KEY) as client:

        def check(index: int) -> None:
            expected = trained(form, cases[index])
            assert answer(client, request_for(index), stream=False) == expected, cases[index]
            assert answer(client, request_for(index), stream=True) == expected, cases[index]

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(check, range(len(cases))))
    record_property(TABLE, f"{dialect}: {len(cases)} texts, training = whole = streamed")


def answer(client: OpenAI, text: str, *, stream: bool) -> Shown:
    messages: list[Any] = [{"role": "user", "content": text}]
    chat: dict[str, Any] = {"model": "scripted", "messages": messages, "tools": TOOLS, "temperature": 0}
    if stream:
        with client.chat.completions.create(**chat, stream=True) as chunks:
            whole = joined(chunks)
        return "", whole["content"], whole["calls"]
    message = client.chat.completions.create(**chat).choices[0].message
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    return "", message.content or "", calls
