"""Tool documents that a stranger wrote are read in time that grows with their length."""

import time
from collections.abc import Mapping

import pytest

from envs.interface.vocabulary import is_public_number, tool_names
from envs.task import ToolDoc
from envs.tool_documents import read_tool


class Foreign:
    """A source with one tool."""

    def __init__(self, name: str, description: str) -> None:
        schema = {"type": "dict", "properties": {}, "required": []}
        self._tool = read_tool({"name": name, "description": description, "parameters": schema})

    def tools(self) -> Mapping[str, ToolDoc]:
        return {self._tool.name: self._tool}

    def public_texts(self) -> tuple[str, ...]:
        return ()


@pytest.mark.parametrize("text", ["1" * 25_000, "٣" * 25_000, "1." * 12_500, "a" * 25_000])
def test_a_long_document_costs_little(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Foreign(text, f"{text} 12.50 7")
    monkeypatch.setattr("envs.interface.vocabulary.known_sources", lambda: (source,))
    started = time.process_time()
    assert is_public_number("12.50")
    assert is_public_number("7")
    assert not is_public_number("8")
    _, beginnings = tool_names()
    assert time.process_time() - started < 1
    assert sum(map(len, beginnings)) < 100_000
