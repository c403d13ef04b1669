"""BFCL V4's web search as an exam: questions of several hops, a search engine, and the pages that it returns.

Each of the 100 questions comes twice: in `base` with snippets in the search results, in `no_snippet` without. As in the
official checker, the final answer must contain an expected one.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from envs.bfcl.agentic import converse, graded, tools_in
from envs.bfcl.tools import data_folder, read_entries
from envs.bfcl.web_search import OFFICIAL, Service, Web
from envs.errors import UserError
from envs.exams import Candidate, Mark
from envs.task import JSON, ToolCall, ToolDoc

CATEGORIES = ("base", "no_snippet")
CALLS_AT_ONCE = 20
"""Calls of one answer that are executed: a search costs money, and a page may take a minute."""
PACKAGES = {"bs4": "beautifulsoup4", "html2text": "html2text", "httpx": "httpx"}
"""Module → package that only this suite needs."""


class WebSearchExam:
    """100 questions in each of two categories. The two forms of a question are one group."""

    name = "bfcl-v4-web-search"
    about = "questions that pages of the web answer"

    def __init__(self, web: Web | None = None) -> None:
        # This module has constants only.
        from bfcl_eval.constants import default_prompts

        service = Service.from_environment() if web is None else web.service
        missing = [package for module, package in PACKAGES.items() if importlib.util.find_spec(module) is None]
        if web is None and missing:
            raise UserError(
                f"{self.name}: {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed; "
                f"run `pip install {' '.join(missing)}`."
            )
        self.web = Web(service) if web is None else web
        tools = tools_in(data_folder() / "multi_turn_func_doc" / "web_search.json")
        system = default_prompts.ADDITIONAL_SYSTEM_PROMPT_FOR_AGENTIC_RESPONSE_FORMAT
        self._items = [
            WebSearchItem(self.web, category, row, tuple(answers), tools, system)
            for category in CATEGORIES
            for row, answers in read_entries("web_search")
        ]

    def items(self) -> Sequence[WebSearchItem]:
        return self._items

    def notes(self) -> Sequence[str]:
        address = self.web.service.address
        notes = [] if address == OFFICIAL else [f"searches were answered by {address}, not by the official service."]
        if self.web.service.private:
            hosts = ", ".join(sorted(self.web.service.private))
            notes.append(f"pages of {hosts} were fetched from wherever these names point to.")
        return notes

    def close(self) -> None:
        self.web.close()


@dataclass(frozen=True, slots=True, eq=False)
class WebSearchItem:
    """One entry of the data file, with snippets or without."""

    web: Web = field(repr=False)
    category: str
    entry: Mapping[str, Any]
    answers: tuple[str, ...]
    tools: tuple[ToolDoc, ...] = field(repr=False)
    system: str = field(repr=False)
    after: str | None = field(default=None, init=False)
    counts: bool = field(default=True, init=False)

    @property
    def id(self) -> str:
        return str(self.entry["id"]).replace("web_search", f"web_search_{self.category}", 1)

    @property
    def group(self) -> str:
        return str(self.entry["id"])

    async def sit(self, candidate: Candidate, before: JSON) -> Mark:  # noqa: ARG002 - nothing comes before
        async def execute(call: ToolCall) -> str:
            return (await self.web.execute(call, show_snippet=self.category == "base")).text

        turns = self.entry["question"]
        said, end = await converse(candidate, self.tools, self.system, turns, execute, calls_at_once=CALLS_AT_ONCE)
        return graded(said, end, self.answers)
